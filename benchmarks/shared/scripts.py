"""The scripts that make the tables of docs/results/. A script has the name of its CSV file."""

# In the order of the page: what it is worth, against whom, the paper's own tables, thresholds, what it costs.
SCRIPTS = {
    "figure_1": "benchmarks.paper.figure_1",
    "suite": "benchmarks.suite.suite",
    "rivals": "benchmarks.rivals.rivals",
    "trees_default": "benchmarks.trees.default",
    "trees_costs": "benchmarks.trees.costs",
    "long_tail": "benchmarks.long_tail.long_tail",
    "tabular_linear": "benchmarks.suite.tabular_linear",
    "cifar10_table": "benchmarks.paper.cifar10_table",
    "cifar10_linear": "benchmarks.paper.cifar10_linear",
    "many_labels": "benchmarks.paper.many_labels",
    "areas": "benchmarks.paper.areas",
    "accuracy_trade": "benchmarks.paper.accuracy_trade",
    "anchors": "benchmarks.paper.anchors",
    "convergence": "benchmarks.paper.convergence",
    "robustness": "benchmarks.paper.robustness",
    "operating_points": "benchmarks.decisions.operating_points",
    "engine": "benchmarks.cost.engine",
    "estimator_cost": "benchmarks.cost.estimator_cost",
    "program_cost": "benchmarks.cost.program_cost",
}
