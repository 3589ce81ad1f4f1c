"""An estimator that is fitted by batches, and dumped by joblib over the same file, compressed; a restart loads it."""

from __future__ import annotations

import joblib
import numpy as np
from lives import Life, until

FEATURES, CLASSES = 4000, 300


class Classifier:
    """As scikit-learn's SGDClassifier keeps itself."""

    def __init__(self) -> None:
        """Begin with noise."""
        random = np.random.default_rng(1)
        self.coef_ = random.standard_normal((CLASSES, FEATURES))
        self.average_coef_ = random.standard_normal((CLASSES, FEATURES))
        self.t_ = 1

    def partial_fit(self, batch: np.ndarray) -> None:
        """Take one step."""
        self.coef_ -= 1e-4 * np.tanh(batch @ self.coef_.T).T @ batch
        self.t_ += len(batch)


def main() -> None:
    """Fit in two lives."""
    life = Life(__doc__)
    path, random, model = life.folder / "model.joblib", np.random.default_rng(2), Classifier()
    if life.again:
        with life.restore(path) as row, row.part("serialize"):
            model = joblib.load(path)
    for _ in range(2 if life.again else 3):
        until(3, lambda: model.partial_fit(random.standard_normal((64, FEATURES))))
        with life.save(path) as row, row.part("serialize"):  # zlib is most of it, piece by piece between the writes
            joblib.dump(model, path, compress=3)
    until(1, lambda: model.partial_fit(random.standard_normal((64, FEATURES))))
    if not life.again:
        life.start_again()


if __name__ == "__main__":
    main()
