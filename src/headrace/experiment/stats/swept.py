"""Least squares beside thousands of groups, which are taken out by their means instead of a column each.

Sources: Frisch & Waugh 1933, Partial time regressions as compared with individual trends, Econometrica 1; Searle
1971, Linear Models, ch. 7 (two ways of classification, and their rank).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Places = NDArray[np.int64]

#: Columns that are this small beyond the groups are constant within each.
NOTHING = 1e-10


class Groups:
    """The group (n,) of each observation, from 0."""

    def __init__(self, codes: Places) -> None:
        self.codes = codes
        self.sizes = np.bincount(codes)
        self.count = len(self.sizes)

    def without(self, columns: Floats) -> Floats:
        """Columns (n, k) less their means in each group."""
        sums = np.stack([np.bincount(self.codes, column) for column in columns.T], axis=1)
        left = columns - (sums / self.sizes[:, None])[self.codes]
        left[np.abs(left) < NOTHING * max(float(np.abs(columns).max()), 1e-300)] = 0.0
        return np.asarray(left)

    def mean(self, values: Floats) -> float:
        """The mean of the groups' means."""
        return float((np.bincount(self.codes, values) / self.sizes).mean())

    def beside(self, others: Places, values: Floats) -> tuple[float, int]:
        """The squares of values (n,) that these groups and ``others`` (n,) together leave, and their rank."""
        from scipy.sparse import bmat, coo_matrix, csr_matrix
        from scipy.sparse.csgraph import connected_components

        if int(others.max()) + 1 > self.count:
            return Groups(others).beside(self.codes, values)
        together = csr_matrix(coo_matrix((np.ones(len(values)), (others, self.codes))))
        own = self.without(values[:, None])[:, 0]
        # The groups' part is taken out of the equations for the others, which are fewer.
        scaled = together.multiply(1.0 / self.sizes[None, :])
        normal = np.diag(np.bincount(others).astype(float)) - np.asarray((scaled @ together.T).todense())
        level = np.linalg.lstsq(normal, np.bincount(others, own), rcond=1e-10)[0]
        left = values - level[others]
        left = left - (np.bincount(self.codes, left) / self.sizes)[self.codes]
        parts = connected_components(bmat([[None, together], [together.T, None]]), directed=False)[0]
        return float(left @ left), together.shape[0] + self.count - int(parts)
