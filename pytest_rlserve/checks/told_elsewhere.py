"""What a capture holds of weight updates beside control records, and why no check can be made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

_FILES = {
    "model_express.weight_versions": "ModelExpress says which weight versions were published, not when one was READY, "
    "which worker loaded it or emptied its cache",
    "dynamo.rl_workers": "Dynamo's list of workers says who can take weight updates, not when one took any, "
    "or which version it has",
}
_SERIES = {
    "vllm:rl_weight_update_": "vLLM's metrics count and time weight operations, but not when they were, "
    "which version they brought, or whether the cache was emptied",
    "sglang:weight_load_duration_seconds": "SGLang's metrics say how long the last load of weights took, not when it "
    "was, which version it brought, or whether the cache was emptied",
}


def told_elsewhere(capture: Capture) -> str:
    """Name what speaks of weight updates and is no control record, each with what it does not tell; may be empty."""
    formats = {source.format for source in capture.sources}
    said = [text for format, text in _FILES.items() if format in formats]
    names = capture.scrapes["name"]
    said += [text for name, text in _SERIES.items() if pc.any(pc.starts_with(names, name)).as_py()]
    return "".join(f"; {text}" for text in said)
