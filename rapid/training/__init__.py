"""RapidTrainer and its parts.

`trainer` reads as Algorithm 1, with the settings of `config`. It samples by `generation`, grades by
`rewards`, cuts mini-batches by `micro_batches`, and finds log-probabilities by `forward`. `trl`
has everything that bends TRL for it. docs/architecture.md says what each file is for.
"""
