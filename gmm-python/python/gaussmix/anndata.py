"""Clusters of an AnnData by `gaussmix.mclust`, in the place of R's mclust by rpy2."""

from typing import Any

import numpy as np

from ._documentation import document
from .mclust import Mclust

__all__ = ["cluster"]


def cluster(
    adata: Any,
    G: int,
    modelNames: str = "EEE",
    used_obsm: str = "emb_pca",
    random_seed: int = 2020,
    key_added: str = "mclust",
    device: str = "cpu",
) -> Any:
    """Add the classes of an embedding's rows, as GraphST's and STAGATE's ``mclust_R`` does, and return the same AnnData.
    Parameters:
    adata : AnnData -- The cells; anything with `obsm` and `obs`.
    G : int -- The number of components.
    modelNames : str, default='EEE' -- The model, or several, of which the best by BIC is taken.
    used_obsm : str, default='emb_pca' -- The key of the embedding in `obsm`.
    random_seed : int, default=2020 -- What draws the 2,000 rows that give the start of more.
    key_added : str, default='mclust' -- The column of `obs` that gets the classes, from 1, as a category.
    """
    import pandas

    fit = Mclust(np.asarray(adata.obsm[used_obsm]), G, modelNames, device=device, random_state=random_seed)
    adata.obs[key_added] = pandas.Categorical(fit.classification)
    return adata


document()
