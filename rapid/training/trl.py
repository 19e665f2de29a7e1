"""What bends TRL: each bend, and which of its behaviours forces it."""


def without_vllm() -> None:
    """Keep TRL from importing vLLM, which takes seconds, where transformers does the sampling."""
    import trl.import_utils as trl_imports

    trl_imports.is_vllm_available = lambda *_, **__: False
