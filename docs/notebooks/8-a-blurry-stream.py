# %% [markdown]
# # My method on a blurry stream
#
# In a blurry stream the sessions have no clear boundaries: half of the classes come in one session alone, and a tenth of
# the samples of the others is spread over all sessions (i-Blurry-50-10). Samples come once, ten at a time, and nothing
# says where a session ends. This notebook writes a method in one class and compares it with others on such a stream.

# %%
from collections.abc import Mapping

import numpy as np

import taer
from taer.experiment import Callback, Run, Trial, execute
from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.closed_form.base import SolvedHead
from taer.heads.params import param

# %% [markdown]
# ## The stream

# %%
data = taer.load_features()
stream = taer.make_stream(data, "blurry", sessions=5)
for t, new in enumerate(stream.tasks):
    print(f"session {t}: {len(stream.train_rows(t))} samples, {len(new)} new classes, "
          f"{len(stream.classes_of(t)) - len(new)} that return")  # fmt: skip
assert stream.returning
assert stream.batch == 10

# %% [markdown]
# ## The method
#
# Class means and one covariance for all classes, as in linear discriminant analysis, but each mean is pulled towards the
# mean of all classes, the more the fewer samples it has. A class that a session merely touches then starts near the
# middle instead of at a single sample. The base class collects exact counts, means and scatters over all sessions, so
# classes may return in any order; the method is one formula.


# %%
class PulledLDA(
    SolvedHead, name="pulled-lda", card=Card("closed form", old_scores="move", keeps="statistics", forgets="no")
):
    """LDA whose class means are pulled to the mean of all, as if each had some samples there."""

    pull: float = param(2.0, "number of pseudo-samples at the mean of all classes", at_least=0)
    shrinkage: float = param(0.1, "fraction of the mean variance mixed into the covariance", at_least=0, at_most=1)

    def _choose(self, task: Task) -> None:
        """Nothing is chosen in the first batch."""

    def _solution(self) -> tuple[np.ndarray, np.ndarray]:
        found = self.statistics_
        share = (found.counts / (found.counts + self.pull))[:, None]
        means = share * found.means + (1 - share) * found.means.mean(axis=0)
        covariance = found.covariance()
        scale = np.trace(covariance) / len(covariance)
        covariance = (1 - self.shrinkage) * covariance + self.shrinkage * scale * np.eye(len(covariance))
        columns = np.linalg.solve(covariance, means.T).T
        return columns, -0.5 * (columns * means).sum(axis=1)


# %% [markdown]
# ## Against the others
#
# `execute` runs a head over the stream, measures its accuracy 20 times for A_AUC, and everything else after each session. A
# callback follows it. `bayes` waits for 600 samples until its prior is fitted. On the command line, `taer run --stream
# blurry --methods mymodule:PulledLDA,slda,er,bayes` does the same with a table, and `taer report` draws it.


# %%
class Shown(Callback):
    def on_task(self, run: Run, task: int, measured: Mapping[str, float]) -> None:
        print(f"{run.method:<12}session {task}: {measured['accuracy']:.1%} of {measured['classes']:.0f} classes")


results = {
    name: execute(Run(stream, name, params, seed=0), Shown() if name == "pulled-lda" else None)
    for name, params in {"pulled-lda": {}, "slda": {}, "ncm": {}, "er": {}, "bayes": {"prior_samples": 600}}.items()
}

# %%
print(f"{'':<12}{'last':>8}{'A_AUC':>8}{'forgetting':>12}")
for name, result in results.items():
    print(f"{name:<12}{result['last']:>8.1%}{result['A_AUC']:>8.1%}{result['forgetting']:>12.1%}")
assert results["pulled-lda"]["last"] > results["er"]["last"]

# %% [markdown]
# How strong the pull should be is chosen on training samples alone: `taer tune --stream blurry --methods
# mymodule:PulledLDA --set pull=0,2,10`. In Python, `Trial` does it: a fifth of the training samples of each class is
# held out and asked, and no test sample is read.

# %%
candidates = tuple({"pull": pull} for pull in (0.0, 2.0, 10.0))
trial = Trial(Run(stream, "pulled-lda", seed=0), candidates, "held-out")
chosen = trial.chosen([execute(run) for run in trial.runs()])
print("chosen:", dict(chosen.params))
print(f"last: {execute(chosen)['last']:.1%}")
