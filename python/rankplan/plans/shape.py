"""The layers of a language model, as plain data."""

from __future__ import annotations

from rankplan.frozen import frozen

LARGEST = 10**15
"""No number of parameters is larger, and no size of a `config.json`."""


@frozen
class Latent:
    """Latent attention (DeepSeek-V2): ranks of the projections, and the parts of a head. ``query_rank`` 0: none."""

    query_rank: int
    rank: int
    plain: int
    rotary: int
    value: int


@frozen
class Experts:
    """The experts of a layer, and which layers have them.

    ``shared_ffn`` is the width of all shared ones. The first ``dense_layers`` have none; of the others, those have some
    whose index modulo ``every`` is ``offset``.
    """

    count: int
    top_k: int
    ffn: int
    shared_ffn: int = 0
    dense_layers: int = 0
    every: int = 1
    offset: int = 0


@frozen
class Shape:
    """The layers of a model. ``cached_layers`` are those whose cache grows with the whole sequence.

    ``tied``: the embedding is the output layer, too. ``scored``: a scalar head may take the place of the output layer.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    cached_layers: int
    gated: bool = True
    tied: bool = False
    scored: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    positions: int = 0
    experts: Experts | None = None
    latent: Latent | None = None
