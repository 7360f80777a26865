"""ThresholdClassifier: scikit-learn's checks, classifiers of others inside, and what it promises about its rows."""

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import aimfor

NOT_AT_ZERO = "decision_function is that of the classifier inside, as in scikit-learn's TunedThresholdClassifierCV"


@parametrize_with_checks(
    [
        aimfor.ThresholdClassifier(LogisticRegression(), "f1", cv=3),
        aimfor.ThresholdClassifier(LogisticRegression(), "precision@recall>=0.9", cv=3),
        aimfor.ThresholdClassifier(LogisticRegression(), "recall@precision>=0.6", cv=0.5),
    ],
    expected_failed_checks=lambda estimator: {"check_classifiers_train": NOT_AT_ZERO},
)
@pytest.mark.filterwarnings("ignore::aimfor.LowConfidenceWarning")
@pytest.mark.filterwarnings("ignore::aimfor.NoThresholdWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)
