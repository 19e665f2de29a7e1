"""Small adapters of every kind that PEFT has for causal language models."""

import peft
from transformers import AutoTokenizer

TASK = {"task_type": "CAUSAL_LM"}
TARGETS = TASK | {"target_modules": ["q_proj", "v_proj"]}
VIRTUAL = TASK | {"num_virtual_tokens": 4}
BYTES = list(range(40, 120))  # tokens that occur in prompts and completions

KINDS = {
    "adalora": (peft.AdaLoraConfig, TARGETS | {"init_r": 4, "total_step": 20, "tfinal": 2}),
    "adaption": (peft.AdaptionPromptConfig, TASK | {"adapter_len": 4, "adapter_layers": 2}),
    "alora": (peft.LoraConfig, TARGETS),  # build_adapter_config adds its invocation tokens
    "boft": (peft.BOFTConfig, TARGETS | {"boft_block_size": 4}),
    "c3a": (peft.C3AConfig, TARGETS | {"block_size": 8}),
    "dora": (peft.LoraConfig, TARGETS | {"use_dora": True}),
    "fourierft": (peft.FourierFTConfig, TARGETS | {"n_frequency": 20}),
    "hra": (peft.HRAConfig, TARGETS),
    "ia3": (peft.IA3Config, TARGETS | {"feedforward_modules": []}),
    "ln": (peft.LNTuningConfig, TASK | {"target_modules": ["norm", "input_layernorm"]}),
    "loha": (peft.LoHaConfig, TARGETS),
    "lokr": (peft.LoKrConfig, TARGETS),
    "lora": (peft.LoraConfig, TARGETS),
    "lora-all": (peft.LoraConfig, TASK | {"target_modules": "all-linear", "bias": "all"}),
    "lora-experts": (peft.LoraConfig, TARGETS | {"target_parameters": ["experts.gate_up_proj"]}),
    "lora-saved": (peft.LoraConfig, TARGETS | {"modules_to_save": ["lm_head"]}),
    "lora-tokens": (peft.LoraConfig, TARGETS | {"trainable_token_indices": BYTES}),
    "miss": (peft.MissConfig, TARGETS | {"r": 4}),
    "oft": (peft.OFTConfig, TARGETS | {"oft_block_size": 4}),
    "p": (peft.PromptEncoderConfig, VIRTUAL | {"encoder_hidden_size": 16}),
    "prefix": (peft.PrefixTuningConfig, VIRTUAL),
    "prompt": (peft.PromptTuningConfig, VIRTUAL),
    "randlora": (peft.RandLoraConfig, TARGETS),
    "road": (peft.RoadConfig, TARGETS | {"group_size": 8}),
    "rslora": (peft.LoraConfig, TARGETS | {"use_rslora": True}),
    "shadow": (peft.ShadowConfig, TASK | {"r": 4, "shadow_dropout": 0.0}),
    "shira": (peft.ShiraConfig, TARGETS | {"r": 2}),
    "tokens": (
        peft.TrainableTokensConfig,
        TASK | {"token_indices": BYTES, "target_modules": ["embed_tokens"]},
    ),
    "vblora": (peft.VBLoRAConfig, TARGETS | {"vector_length": 8, "num_vectors": 256}),
    "vera": (peft.VeraConfig, TARGETS | {"r": 4}),
    "waveft": (peft.WaveFTConfig, TARGETS | {"n_frequency": 20}),
}
FAMILY = {"lora-experts": "Qwen3Moe"}  # all other kinds: Llama


def build_adapter_config(kind: str, toy_model) -> peft.PeftConfig:
    """Return a new configuration of a kind of adapter, for a model of its family."""
    config_class, arguments = KINDS[kind]
    if kind == "alora":  # activated by the end of the prompt, such as "prompt 3"
        tokenizer = AutoTokenizer.from_pretrained(toy_model)
        arguments = arguments | {"alora_invocation_tokens": tokenizer("mpt")["input_ids"]}
    return config_class(**arguments)
