"""MLflow's autologging logs the estimator that was fitted, and none of those that its fit uses on its way."""

import importlib.util
import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="the extra integration is missing")

# In a process of its own: autologging changes every class of scikit-learn.
RUN = """
import json, sys, warnings
warnings.simplefilter("ignore")
import mlflow, numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
import aimfor

mlflow.set_tracking_uri(f"sqlite:///{sys.argv[1]}/runs.db")
mlflow.set_experiment(experiment_id=mlflow.create_experiment("test", artifact_location=f"file://{sys.argv[1]}/files"))
random = np.random.default_rng(0)
X = random.normal(size=(200, 3))
y = (X[:, 0] + random.normal(size=200) > 1).astype(int)
seen, results = set(), {}

def new_runs():
    runs = [run for run in mlflow.search_runs(output_format="list") if run.info.run_id not in seen]
    seen.update(run.info.run_id for run in runs)
    return runs

def fit(name, estimator):
    estimator.fit(X, y)
    results[name] = [[run.data.tags.get("estimator_name"), run.data.params.get("aim")] for run in new_runs()]
    return estimator

def classifier(**options):
    return aimfor.Classifier("precision@recall>=0.8", model="linear", steps=10, random_state=0, **options)

fit("off", classifier())
mlflow.sklearn.autolog(log_datasets=False, silent=True)
with mlflow.start_run() as run:
    model = classifier(calibrate="logistic").fit(X, y)
results["in a run"] = [[one.data.tags.get("estimator_name"), one.data.params.get("aim")] for one in new_runs()]
loaded = mlflow.sklearn.load_model(f"runs:/{run.info.run_id}/model")
results["loaded"] = bool((loaded.predict(X) == model.predict(X)).all())
mlflow.sklearn.autolog(log_datasets=False, log_models=False, silent=True)
fit("alone", classifier())
fit("threshold", aimfor.ThresholdClassifier(LogisticRegression(), "precision@recall>=0.8", random_state=0))
fit("search", GridSearchCV(classifier(), {"steps": [5, 6]}, cv=2))
fit("plain", LogisticRegression())
mlflow.log_params = lambda *args: 1 / 0
warnings.simplefilter("error")
try:
    fit("broken", classifier())
except RuntimeWarning as warning:
    results["broken"] = str(warning)
print(json.dumps(results))
"""


def test_the_estimator_is_logged_and_nothing_inside_it(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    ours = [["Classifier", "precision@recall>=0.8"]]
    assert found["off"] == []
    assert found["in a run"] == ours
    assert found["loaded"] is True
    assert found["alone"] == ours
    assert found["threshold"] == [["ThresholdClassifier", "precision@recall>=0.8"]]
    # MLflow itself gives every candidate of a search a child run.
    assert sorted(name for name, _ in found["search"]) == ["Classifier", "Classifier", "GridSearchCV"]
    assert found["plain"] == [["LogisticRegression", None]]
    assert found["broken"] == "the fit is complete, but MLflow could not log it: division by zero"
