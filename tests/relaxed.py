"""The paper's relaxed problems for linear scores, solved exactly by linear programming, and the true ones by search."""

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import bmat, coo_matrix, csr_matrix, eye, hstack, vstack


def hinge_rows(features: np.ndarray, labels: np.ndarray, anchor_count: int) -> tuple[csr_matrix, np.ndarray]:
    """xi >= 1 - y (w x - b_k) for every anchor and example, as A z <= c with z = (w, b_1..b_K, xi_1..xi_K)."""
    num_rows = len(features)
    sign = np.where(labels == 1, 1.0, -1.0)
    blocks = []
    for anchor in range(anchor_count):
        threshold = np.zeros((num_rows, anchor_count))
        threshold[:, anchor] = sign
        slack = [csr_matrix((num_rows, num_rows))] * anchor_count
        slack[anchor] = -eye(num_rows, format="csr")
        blocks.append(hstack([csr_matrix(-sign[:, None] * features), csr_matrix(threshold), *slack]))
    return vstack(blocks, format="csr"), -np.ones(num_rows * anchor_count)


def directions(count: int = 720) -> np.ndarray:
    """Unit vectors all around the plane, `[2, count]`: with every threshold along them, all lines."""
    angles = np.linspace(0, 2 * np.pi, count, endpoint=False)
    return np.stack([np.cos(angles), np.sin(angles)])


def best_line(metric, features: np.ndarray, labels: np.ndarray) -> float:
    """The highest value of an exact metric, (y_true, y_score) -> one value per column, that a line in the plane has."""
    scores = features @ directions()
    return float(np.max(metric(np.repeat(labels[:, None], scores.shape[1], axis=1), scores)))


def solve(features, labels, objective_u, objective_v, constraint_u, constraint_v, bounds):
    """min sum_k objective_k . (u_k, v_k) subject to constraint_k . (u_k, v_k) <= bound_k, over lines and thresholds.

    Returns:
        The optimal value, or None when there is no feasible point, and the weights.
    """
    anchor_count = len(bounds)
    num_rows, num_features = features.shape
    share_u = np.where(labels == 1, 1 / labels.sum(), 0.0)
    share_v = np.where(labels == 0, 1 / (1 - labels).sum(), 0.0)
    rows, right = hinge_rows(features, labels, anchor_count)
    cost = np.concatenate(
        [np.zeros(num_features + anchor_count)]
        + [a * share_u + b * share_v for a, b in zip(objective_u, objective_v, strict=True)]
    )
    limits = np.zeros((anchor_count, len(cost)))
    for anchor, (a, b) in enumerate(zip(constraint_u, constraint_v, strict=True)):
        start = num_features + anchor_count + anchor * num_rows
        limits[anchor, start : start + num_rows] = a * share_u + b * share_v
    free = [(None, None)] * (num_features + anchor_count)
    slack = [(0, None)] * (num_rows * anchor_count)
    answer = linprog(
        cost, vstack([rows, csr_matrix(limits)]), np.concatenate([right, bounds]), bounds=free + slack, method="highs"
    )
    if answer.status == 2:
        return None, None
    assert answer.status == 0, answer.message
    return answer.fun, answer.x[:num_features]


def solve_f_beta(features, labels, beta):
    """The paper's linear program for F_beta (its eq. f1equiv): the best surrogate F_beta of a line with offset."""
    with_offset = np.hstack([features, np.ones((len(features), 1))])
    positives, negatives = with_offset[labels == 1], with_offset[labels == 0]
    num_weights, num_positives, num_negatives = with_offset.shape[1], len(positives), len(negatives)
    # z = (omega, epsilon, tau, phi); hinge: t <= 1 and t <= f, that is tau <= epsilon and tau <= omega x.
    cost = np.concatenate(
        [np.zeros(num_weights), [beta**2 * num_positives], np.ones(num_positives), np.ones(num_negatives)]
    )
    one = csr_matrix(np.ones((num_positives, 1)))
    upper = bmat(
        [
            [csr_matrix((num_positives, num_weights)), -one, eye(num_positives), None],
            [csr_matrix(-positives), csr_matrix((num_positives, 1)), eye(num_positives), None],
            [
                csr_matrix(negatives),
                csr_matrix(np.ones((num_negatives, 1))),
                csr_matrix((num_negatives, num_positives)),
                -eye(num_negatives),
            ],
        ]
    )
    equal = coo_matrix(
        np.concatenate([np.zeros(num_weights + 1), np.ones(num_positives), np.zeros(num_negatives)])[None]
    )
    bounds = [(None, None)] * num_weights + [(0, None)] + [(None, None)] * num_positives + [(0, None)] * num_negatives
    answer = linprog(cost, upper, np.zeros(upper.shape[0]), equal, [1.0], bounds=bounds, method="highs")
    assert answer.status == 0, answer.message
    return (1 + beta**2) / answer.fun
