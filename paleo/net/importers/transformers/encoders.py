"""The encoders of text that are known, by `model_type`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paleo.net.importers.transformers.disentangled import disentangled
from paleo.net.importers.transformers.encoder import HEADS, Encoder, attention
from paleo.net.importers.transformers.family import Family, sizes

_BERT = Encoder()
_ROBERTA = Encoder(
    base="roberta", before_positions=2, pooler="roberta/pooler/dense",
    words=("lm_head/dense", "lm_head/layer_norm", "lm_head/decoder"),
    classifier=("classifier/dense", "classifier/out_proj"),
)  # fmt: skip
_ELECTRA = Encoder(
    base="electra", projection="embeddings_project", pooler="",
    words=("generator_predictions/dense", "generator_predictions/LayerNorm", "generator_lm_head"),
    classifier=("classifier/dense", "classifier/out_proj"),
    discriminator=("discriminator_predictions/dense", "discriminator_predictions/dense_prediction"),
    heads_of={**HEADS, "ForPreTraining": "discriminate"},
)  # fmt: skip
_ALBERT = Encoder(
    base="albert", projection="encoder/embedding_hidden_mapping_in",
    layers="encoder/albert_layers", shares=True, pooler="albert/pooler",
    mixer=lambda c, root, base: attention(c, q="query", k="key", v="value", out="dense"),
    out_norm="attention/LayerNorm", up="ffn", down="ffn_output", feed_norm="full_layer_layer_norm",
    words=("predictions/dense", "predictions/LayerNorm", "predictions/decoder"),
    pair="sop_classifier/classifier",
)  # fmt: skip
_DEBERTA = Encoder(
    base="deberta", pooler="pooler/dense", pooler_act="gelu",
    has_positions=lambda c: c.flag("position_biased_input"),
    mixer=lambda c, root, base: disentangled(c, root, base, fused=True),
    heads_of={**HEADS, "Model": ""},
)  # fmt: skip

_BERT_SIZES = {
    **sizes(30522, 768, 3072, 12, 12, 512, hidden_act="gelu", tie_word_embeddings=True),
    "type_vocab_size": 2,
}
_DEBERTA_SIZES = {
    **_BERT_SIZES, "vocab_size": 50265, "type_vocab_size": 0, "relative_attention": False,
    "position_biased_input": True, "conv_act": "tanh", "conv_groups": 1,
}  # fmt: skip
#: How each `model_type` of an encoder of text is read.
ENCODERS: Mapping[str, Family] = {
    "bert": Family(_BERT, _BERT_SIZES),
    "roberta": Family(_ROBERTA, {**_BERT_SIZES, "vocab_size": 50265}),
    "electra": Family(
        _ELECTRA,
        {
            **_BERT_SIZES, "embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4,
            "intermediate_size": 1024,
        },
    ),
    "albert": Family(
        _ALBERT,
        {
            **_BERT_SIZES, "vocab_size": 30000, "embedding_size": 128, "hidden_size": 4096,
            "num_attention_heads": 64, "intermediate_size": 16384, "hidden_act": "gelu_new",
        },
    ),
    "deberta": Family(_DEBERTA, _DEBERTA_SIZES),
    "deberta-v2": Family(
        replace(_DEBERTA, mixer=lambda c, root, base: disentangled(c, root, base, fused=False)),
        {
            **_DEBERTA_SIZES, "vocab_size": 128100, "hidden_size": 1536, "num_hidden_layers": 24,
            "num_attention_heads": 24, "intermediate_size": 6144,
        },
    ),
}  # fmt: skip
