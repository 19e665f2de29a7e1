"""RapidTrainer: Algorithm 1 of the paper, and its baselines, on TRL's GRPOTrainer.

TRL samples an inference batch, grades it and keeps it for several optimizer steps. This trainer
1. keeps groups whole: a mini-batch, and each forward and backward pass, is made of whole groups, as
   the importance-weighted baseline needs (TRL shuffles single completions);
2. computes the loss with the pure functions of `rapid.objectives`, from raw rewards;
3. takes log mu, wherever H > 1, from the sampler where that computes as the policy does, else from
   a forward pass right after sampling;
4. can resample the groups without signal (DAPO) and sample in smaller batches (naive GRPO);
5. knows where its time goes (`clock`).
"""

from contextlib import contextmanager

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import RandomSampler
from transformers import LogitsProcessorList
from trl import GRPOTrainer

from rapid.batches import Batch, micro_batches, replace_groups, without_signal
from rapid.behaviour import BehaviourRecorder
from rapid.clock import PhaseClock
from rapid.config import RapidConfig
from rapid.objectives import dapo_loss, grpo_loss, pg_loss, rapid_loss
from rapid.objectives.groups import signal

# Completions in a forward pass without gradient, for each that fits in one with gradient.
NO_GRADIENT_FACTOR = 4

__all__ = ["RapidConfig", "RapidTrainer"]


class RapidTrainer(GRPOTrainer):
    """Train a policy with RAPID. Arguments are those of TRL's `GRPOTrainer`, `args` a `RapidConfig`.

    The reward of a completion is the weighted sum of the reward functions; the first of them is what
    dynamic sampling looks at. After `train`, `clock.seconds` has the wall-clock seconds in sampling,
    grading, backpropagation (all forward passes outside sampling, backward, optimizer) and other.
    """

    _tag_names = ["trl", "rapid"]  # noqa: RUF012 - as TRL has it
    _name = "RAPID"

    def __init__(self, model, reward_funcs, args: RapidConfig | None = None, **kwargs):
        super().__init__(model, reward_funcs, args=args or RapidConfig("rapid"), **kwargs)
        self.clock = PhaseClock()
        self.completions_sampled = 0  # by this process
        self._rewards_per_func: torch.Tensor | None = None
        self._spare_prompts = iter(())
        self._sampled_logp: list[torch.Tensor] = []  # (T,) for each completion just sampled

    # Sample, grade, split into mini-batches -------------------------------------------------------

    def _prepare_inputs(self, inputs):
        if not self.model.training:
            return super()._prepare_inputs(inputs)
        args = self.args
        if self._step % args.steps_per_generation == 0 or self._buffered_inputs is None:
            batch = self._generate_and_score_completions(inputs)
            batch = self._resample(batch)
            self._buffered_inputs = micro_batches(batch, args.H, args.gradient_accumulation_steps)
        return self._buffered_inputs[self._step % args.steps_per_generation]

    def _generate_and_score_completions(self, inputs) -> Batch:
        with self.clock.phase("other"):
            batch = super()._generate_and_score_completions(inputs)
        mine = slice(
            self.accelerator.process_index * len(inputs),
            (self.accelerator.process_index + 1) * len(inputs),
        )
        rewards = self._rewards_per_func[mine]  # (N, functions)
        batch["rewards"] = (rewards * self.reward_weights.to(rewards.device)).nansum(1)
        batch["accuracy"] = rewards[:, 0].nan_to_num()
        self.completions_sampled += len(inputs)
        return batch

    def _generate_single_turn(self, prompt_ids, images, multimodal_fields, num_generations, *args):
        size = self.args.sampling_batch_size or len(prompt_ids)
        completion_ids, logps = [], []
        with self.clock.phase("sampling"), self._recording():
            for start in range(0, len(prompt_ids), size):
                ids, chunk_logps = super()._generate_single_turn(
                    prompt_ids[start : start + size],
                    images,
                    multimodal_fields,
                    num_generations,
                    *args,
                )
                completion_ids += ids
                logps += chunk_logps or []
        return completion_ids, logps or None

    @contextmanager
    def _recording(self):
        """Keep log mu of what transformers samples meanwhile, where it will be needed and is exact."""
        self._sampled_logp = []
        args, model = self.args, self.accelerator.unwrap_model(self.model)
        if args.H == 1 or args.use_vllm or not args.sampler_logp or args.bf16 or args.fp16:
            yield
            return
        generate, patched = model.generate, "generate" in vars(model)

        def recording_generate(**inputs):
            recorder = BehaviourRecorder(args.temperature)
            output = generate(**inputs, logits_processor=LogitsProcessorList([recorder]))
            self._sampled_logp += recorder.finish(output)
            return output

        model.generate = recording_generate
        try:
            yield
        finally:
            if patched:
                model.generate = generate
            else:
                del model.generate

    def _calculate_rewards(self, *args):
        with self.clock.phase("grading"):
            self._rewards_per_func = super()._calculate_rewards(*args)
        return self._rewards_per_func

    def _resample(self, batch: Batch) -> Batch:
        """Replace groups without signal by groups of other prompts, for a bounded number of rounds."""
        group = self.num_generations
        for _ in range(1, self.args.dynamic_sampling_rounds):
            dead = without_signal(batch["accuracy"], group)
            count = torch.tensor(len(dead), device=self.accelerator.device)
            count = int(self.accelerator.gather(count).max())  # all processes sample alike
            if not count:
                break
            inputs = [prompt for prompt in self._draw(count) for _ in range(group)]
            fresh = self._generate_and_score_completions(inputs)
            # Only groups with signal are taken over, so that no round makes a batch poorer.
            is_dead = torch.zeros(count, dtype=torch.bool, device=dead.device)
            is_dead[without_signal(fresh["accuracy"], group)] = True
            alive = (~is_dead).nonzero().flatten()[: len(dead)]
            rows = (alive[:, None] * group + torch.arange(group, device=dead.device)).flatten()
            fresh = {name: value[rows] if value.dim() else value for name, value in fresh.items()}
            dead = dead[: len(alive)]
            batch = replace_groups(batch, fresh, dead, group, self._tokenizer.pad_token_id)
        return batch

    def _draw(self, count: int) -> list[dict]:
        """`count` further prompts: endless passes over the training set, in an order of their own."""
        drawn = []
        while len(drawn) < count:
            index = next(self._spare_prompts, None)
            if index is None:
                self._spare_prompts = iter(RandomSampler(self.train_dataset))
            else:
                drawn.append(self.train_dataset[index])
        return drawn

    # Step -----------------------------------------------------------------------------------------

    def training_step(self, model, inputs, num_items_in_batch):
        with self.clock.phase("backpropagation"):
            return super().training_step(model, inputs, num_items_in_batch)

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, **kwargs
    ):
        if self._sampled_logp and not torch.is_grad_enabled():
            # TRL asks for log mu first, once; the sampler has given it already.
            logp = pad_sequence(self._sampled_logp, batch_first=True)[:, :logits_to_keep]
            self._sampled_logp = []
            return logp, None, None
        if batch_size:  # a pass without gradient, which keeps no activations
            batch_size *= NO_GRADIENT_FACTOR
        with self.clock.phase("backpropagation"):
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size, **kwargs
            )

    def _compute_loss(self, model, inputs):
        prompt_mask, mask = inputs["prompt_mask"], inputs["completion_mask"]
        logp, _, _ = self._get_per_token_logps_and_entropies(
            model,
            torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
            torch.cat([prompt_mask, mask], dim=1),
            logits_to_keep=mask.size(1),
        )  # (N, T)
        behavior_logp = inputs.get("old_per_token_logps", logp.detach())
        rewards, group = inputs["rewards"], self.num_generations
        args, share = self.args, inputs.get("sequence_share", 1.0)
        match args.objective:
            case "rapid":
                loss, metrics = rapid_loss(
                    logp, behavior_logp, mask, rewards, group, args.eta, args.clip
                )
            case "pg":
                loss, metrics = pg_loss(logp, mask, rewards, group)
            case "grpo":
                reference_logp = inputs.get("ref_per_token_logps", logp.detach())
                loss, metrics = grpo_loss(
                    logp,
                    behavior_logp,
                    reference_logp,
                    mask,
                    rewards,
                    group,
                    args.beta,
                    args.epsilon,
                )
            case "dapo":
                loss, metrics = dapo_loss(
                    logp, behavior_logp, mask, rewards, group, args.epsilon, self.epsilon_high
                )
                share = inputs.get("token_share", 1.0)
        metrics |= {
            "accuracy": inputs["accuracy"].mean(),
            "length": mask.sum(1).float().mean(),
            "signal": signal(inputs["accuracy"], group),
        }
        self._record(metrics)
        return loss * share

    def _record(self, metrics: dict[str, torch.Tensor]) -> None:
        values = self.accelerator.reduce(torch.stack([m.float() for m in metrics.values()]), "mean")
        for name, value in zip(metrics, values.tolist(), strict=True):
            self._metrics["train" if self.model.training else "eval"][f"rapid/{name}"].append(value)
