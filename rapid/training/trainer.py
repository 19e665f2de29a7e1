"""RapidTrainer: Algorithm 1 of the paper, and its baselines, on TRL's GRPOTrainer.

Sample an inference batch, grade it, split it into H mini-batches, take an optimizer step on each.
Where it departs from TRL's loop:
1. Groups stay whole: in a mini-batch, and in each forward and backward pass, as the importance-weighted
   baseline needs (TRL shuffles single completions).
2. The loss is one of the pure functions of `rapid.algorithms`, from raw rewards.
3. An optimizer step is one `training_step`, which makes its own passes: as many as there is something to
   learn from, none of them wider than its longest completion.
4. Processes see the whole inference batch and divide what is to be run.
5. It can resample the groups without signal (DAPO) and sample in smaller batches (naive GRPO).
6. It knows where its time goes (`clock`).
"""

import math
import time
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import islice

import torch
from accelerate.utils import DistributedType
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence
from trl import GRPOTrainer
from trl.data_utils import is_conversational

from rapid.training import batches
from rapid.training.batches import Batch
from rapid.training.clock import AfterOptimizer, PhaseClock
from rapid.training.config import RapidConfig
from rapid.training.forward import completion_logp
from rapid.training.generation import instrumented
from rapid.training.loss import pass_loss
from rapid.training.metrics import WeightedMeans, of_mini_batch
from rapid.training.processes import gathered, with_others
from rapid.training.rewards import StreamedRewards
from rapid.training.vllm import engine_dtype, engine_like_the_policy, mend_weight_sync

# Padded tokens of a pass without gradient, which keeps no activations, for each of one with.
NO_GRADIENT_FACTOR = 4
# What of TRL's batch is used. Log-probabilities have the names of their policies in the objectives.
KEPT = {
    "prompt_ids": "prompt_ids",
    "prompt_mask": "prompt_mask",
    "completion_ids": "completion_ids",
    "completion_mask": "completion_mask",
    "ref_per_token_logps": "reference_logp",
    "sampling_per_token_logps": "sampler_logp",
}


class RapidTrainer(GRPOTrainer):
    """Train a policy with RAPID. Arguments are those of TRL's `GRPOTrainer`, `args` a `RapidConfig`.

    The reward of a completion is the weighted sum of the reward functions; the first of them is what
    dynamic sampling looks at. Where all of them return None for a completion it was not graded: its
    whole group takes no part in gradient and metrics, and the others count as if it contributed 0.
    Policies are text models and completions a single turn: no tools, no images.

    `last_pass` is what ran last: the optimizer step, the pass, and its log pi, (N, T) without gradient.
    After `train`, `clock.seconds` has the wall-clock seconds in sampling (from prompts to completions, as
    texts), grading, sync (of weights to vLLM), backpropagation (making passes, all forward passes outside
    sampling, backward, the optimizer's step) and other.

    Raises:
        ValueError: what this trainer does not do was asked for.
    """

    _tag_names = ["trl", "rapid"]  # noqa: RUF012 - as TRL has it
    _name = "RAPID"

    def __init__(self, model, reward_funcs, args: RapidConfig | None = None, **kwargs):
        if kwargs.get("tools") or kwargs.get("environment_factory"):
            raise ValueError(
                "RapidTrainer trains on single turns: leave tools and environments out"
            )
        args = args or RapidConfig("rapid")
        with engine_like_the_policy(args.seed):
            super().__init__(model, reward_funcs, args=args, **kwargs)
        self._refuse_too_few_prompts()
        self.clock = PhaseClock()
        self.completions_sampled = 0  # by this process
        self.last_pass: tuple[int, Batch, torch.Tensor] | None = (
            None  # step, what ran, log pi (N, T)
        )
        self._steps: list[list[Batch]] = []  # the passes of each optimizer step to come
        self._mini_batches: list[Batch] = []
        self._examples: list[dict] = []  # the dataset's rows of the batch being sampled
        self._rewards_per_func: torch.Tensor | None = None
        self._spare_prompts = batches.endless(self.train_dataset, self.args.seed + 1)
        self._sampled_logp: list[torch.Tensor] = []  # (T,) for each completion just sampled
        self._means = WeightedMeans(
            lambda values: self.accelerator.reduce(values, "mean"), self.args.reduce_metrics_once
        )
        self._streamed = self._start_grading()
        self._optimizer_phase = ExitStack()  # from the last pass to the end of the optimizer's step
        self.add_callback(AfterOptimizer(self._optimizer_phase.close))
        if self.use_vllm:
            mend_weight_sync(self.vllm_generation, self.args.sync_in_one_call, self.clock)

    def _refuse_too_few_prompts(self) -> None:
        needed = self.args.H * self.args.n_step // self.num_generations
        if isinstance(self.train_dataset, Dataset) and len(self.train_dataset) < needed:
            raise ValueError(
                f"train_dataset has {len(self.train_dataset)} prompts, but one inference batch takes "
                f"{needed} (H={self.args.H} * n_step={self.args.n_step} / num_generations="
                f"{self.num_generations}): lower H or n_step, or repeat the dataset"
            )

    def _get_dataloader(self, dataset, description, batch_size, is_training=False, **others):
        """TRL's, which yields an inference batch anew at each of its H steps: its rows are kept."""
        if is_training:
            batch_size = self.args.generation_batch_size // self.accelerator.num_processes
            dataset = batches.Kept(dataset) if isinstance(dataset, Dataset) else dataset
        return super()._get_dataloader(
            dataset, description, batch_size, is_training=is_training, **others
        )

    # Sample and grade -----------------------------------------------------------------------------

    def _prepare_inputs(self, inputs):
        if not self.model.training:
            return batches.with_graded(super()._prepare_inputs(inputs), self._group())
        args = self.args
        if self._step % args.H == 0 or not self._steps:
            with self.clock.phase("other"):
                batch = self._resample(self._sample(inputs))
                self._mini_batches = batches.mini_batches(batch, args.H)
                with self.clock.phase("backpropagation"):
                    self._steps = [self._passes(step) for step in range(args.H)]
                    self._find_behavior_logp()
        return self._steps[self._step % args.H]

    def _sample(self, inputs: list[dict]) -> Batch:
        """Completions of these and of the other processes' prompts, graded."""
        batch = self._generate_and_score_completions(inputs)
        batch = gathered(batch, self.accelerator, self._tokenizer.pad_token_id)
        return batches.with_graded(batch, self.num_generations)

    def _generate_and_score_completions(self, inputs) -> Batch:
        self._examples, self._sampled_logp = inputs, []
        with self.clock.phase("other"), self._no_logp_of_trl():
            sampled = super()._generate_and_score_completions(inputs)
        if "tool_mask" in sampled or "pixel_values" in sampled:
            raise ValueError(
                "RapidTrainer trains on text: leave tools, environments and images out"
            )
        batch = {ours: sampled[name] for name, ours in KEPT.items() if name in sampled}
        if self._sampled_logp:
            batch["sampler_logp"] = pad_sequence(self._sampled_logp, batch_first=True)[
                :, : batch["completion_ids"].size(1)
            ]
        first = self.accelerator.process_index * len(inputs)
        rewards = self._rewards_per_func[first : first + len(inputs)]  # (N, functions)
        ungraded = rewards.isnan().all(1)
        weighted = rewards * self.reward_weights.to(rewards.device)
        batch["rewards"] = weighted.nansum(1).masked_fill(ungraded, math.nan)
        batch["accuracy"] = rewards[:, 0].nan_to_num()
        self.completions_sampled += len(inputs)
        return batch

    @contextmanager
    def _no_logp_of_trl(self):
        """TRL finds log mu unless it samples for each optimizer step: let it think so."""
        self.args.gradient_accumulation_steps = self.args.steps_per_generation
        try:
            yield
        finally:
            self.args.gradient_accumulation_steps = 1

    def _generate(self, prompts):
        with self.clock.phase("sampling"):  # with the prompts' tokens and the completions' texts
            return super()._generate(prompts)

    def _generate_single_turn(self, prompt_ids, images, multimodal_fields, num_generations, *args):
        if len(prompt_ids) % num_generations:
            num_generations = 1  # groups are torn between processes: each completion by itself
        size = self.args.sampling_batch_size or len(prompt_ids)
        completion_ids, logps = [], []
        for start in range(0, len(prompt_ids), size):
            with self._watching(start) as recorded:
                ids, chunk_logps = super()._generate_single_turn(
                    prompt_ids[start : start + size],
                    images,
                    multimodal_fields,
                    num_generations,
                    *args,
                )
            for row, completion in enumerate(ids, start):
                self._grade_early(row, completion)
            completion_ids += ids
            logps += chunk_logps or []
            self._sampled_logp += recorded
        return completion_ids, logps or None

    @contextmanager
    def _watching(self, start: int):
        """Share prompts, record log mu and grade early in what transformers samples from row `start`."""
        args = self.args
        if self.use_vllm or not self.model.training:
            yield []
            return
        with instrumented(
            self.accelerator.unwrap_model(self.model),
            share_prefill=args.share_prefill,
            record_at=args.temperature if args.H > 1 and self._sampler_is_exact() else None,
            ends=torch.tensor(self.eos_token_ids),
            on_end=(lambda row, ids: self._grade_early(start + row, ids))
            if self._streamed
            else None,
        ) as recorded:
            yield recorded

    def _sampler_is_exact(self) -> bool:
        """Whether the sampler's log-probabilities are the policy's up to float32's rounding."""
        precise = self.model.dtype in (torch.float32, torch.float64)
        if not (self.args.reuse_logp and precise) or self.args.bf16 or self.args.fp16:
            return False
        return not self.use_vllm or engine_dtype(self.vllm_generation) == torch.float32

    def _start_grading(self) -> StreamedRewards | None:
        if not self.args.grading_workers:
            return None
        extra = {"trainer_state": self.state, "log_metric": self._log_metric}
        return StreamedRewards(self.reward_funcs, self.args.grading_workers, extra)

    def _grade_early(self, row: int, ids: list[int]) -> None:
        if not self._streamed or not self.model.training:
            return
        example = self._examples[row]
        text = self.processing_class.decode(ids, skip_special_tokens=True)
        if is_conversational(example):
            if getattr(self._tokenizer, "response_template", None) is not None:
                return  # TRL parses what the model says: graded when all are sampled
            text = [{"role": "assistant", "content": text}]
        self._streamed.submit(row, example, text, ids)

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        with self.clock.phase("grading"):
            if self._streamed and self.model.training:
                rewards = self._streamed.collect(inputs, completions, completion_ids_list)
                self._rewards_per_func = self.accelerator.gather(
                    rewards.to(self.accelerator.device)
                )
            else:
                self._rewards_per_func = super()._calculate_rewards(
                    inputs, prompts, completions, completion_ids_list
                )
        return self._rewards_per_func

    def _resample(self, batch: Batch) -> Batch:
        """Replace groups without signal by groups of other prompts, for a bounded number of rounds."""
        group, processes = self.num_generations, self.accelerator.num_processes
        for _ in range(1, self.args.dynamic_sampling_rounds):
            dead = batches.without_signal(batch["accuracy"], group)
            if not len(dead):
                break
            least = math.lcm(group, processes) // group  # else some would sample more than others
            count = least * math.ceil(len(dead) / least)
            prompts = [one for one in islice(self._spare_prompts, count) for _ in range(group)]
            with self.accelerator.split_between_processes(prompts) as inputs:
                fresh = self._sample(inputs)
            # Only groups with signal are taken over, so that no round makes a batch poorer.
            is_dead = torch.zeros(count, dtype=torch.bool, device=dead.device)
            is_dead[batches.without_signal(fresh["accuracy"], group)] = True
            alive = (~is_dead).nonzero().flatten()[: len(dead)]
            fresh = batches.take(fresh, alive.tolist(), group, trim=False)
            dead = dead[: len(alive)]
            pad_id = self._tokenizer.pad_token_id
            batch = batches.replace_groups(batch, fresh, dead, group, pad_id)
        return batch

    # Split into mini-batches, and these into passes -----------------------------------------------

    def _passes(self, step: int) -> list[Batch]:
        """What this process runs in a step: the same number of passes as the others."""
        args, group, mini_batch = self.args, self.num_generations, self._mini_batches[step]
        runs = mini_batch["graded"][::group]  # (K,)
        if args.skip_zero_groups:
            rewards = mini_batch["rewards"]
            runs = runs & args.algorithm.contributes(rewards, group, args, on_policy=step == 0)
        groups = runs.nonzero().flatten().tolist()
        budget = (args.token_budget or args.micro_batch_size * self._width()) if args.pack else None
        # DeepSpeed steps in a backward pass: there has to be one.
        least = 1 if self.accelerator.distributed_type == DistributedType.DEEPSPEED else 0
        return batches.passes(
            mini_batch,
            groups,
            group,
            processes=self.accelerator.num_processes,
            process=self.accelerator.process_index,
            size=args.micro_batch_size // group,
            budget=budget,
            least=least,
        )

    def _width(self) -> int:
        """Tokens of the longest prompt and the longest completion of the inference batch together."""
        one = self._mini_batches[0]  # all are as wide: none is trimmed
        return one["prompt_ids"].size(1) + one["completion_ids"].size(1)

    def _find_behavior_logp(self) -> None:
        """log mu, from the second step on: in the first the policy is mu."""
        first = 1 if self.args.reuse_logp else 0
        for passes in self._steps[first:]:
            for piece in passes:
                known = piece.get("sampler_logp")
                if known is not None and self._sampler_is_exact() and not known.isnan().any():
                    piece["behavior_logp"] = known
                else:
                    with torch.no_grad():
                        piece["behavior_logp"] = self._logp(self.model, piece)

    # Step -----------------------------------------------------------------------------------------

    def training_step(self, model, inputs, num_items_in_batch=None):
        model.train()
        if callable(getattr(self.optimizer, "train", None)):
            self.optimizer.train()
        began = time.perf_counter()
        passes = self._prepare_inputs(inputs)
        mini_batch = self._mini_batches[self._step % self.args.H]
        self._step += 1
        with self.clock.phase("backpropagation"):
            loss = torch.zeros((), device=self.accelerator.device)
            for number, piece in enumerate(passes, 1):
                with self._accumulating(model, last=number == len(passes)):
                    with self.compute_loss_context_manager():
                        part = self._compute_loss(model, piece)
                    self._backward(part)
                loss = loss + part.detach()
            if not passes:  # the optimizer steps all the same: its momentum moves
                for parameter in model.parameters():
                    if parameter.requires_grad and parameter.grad is None:
                        parameter.grad = torch.zeros_like(parameter)
        self._record_step(mini_batch, time.perf_counter() - began)
        self._optimizer_phase.enter_context(self.clock.phase("backpropagation"))
        return loss

    @contextmanager
    def _accumulating(self, model, last: bool):
        """Processes exchange gradients in the last pass only (DeepSpeed: its own way)."""
        deepspeed = self.accelerator.distributed_type == DistributedType.DEEPSPEED
        self.accelerator.gradient_state._set_sync_gradients(last)
        with nullcontext() if last or deepspeed else self.accelerator.no_sync(model):
            yield

    def _backward(self, loss: torch.Tensor) -> None:
        deepspeed = self.accelerator.distributed_type == DistributedType.DEEPSPEED
        self.accelerator.backward(loss, **({"scale_wrt_gas": False} if deepspeed else {}))

    def _logp(self, model, piece: Batch) -> torch.Tensor:
        share = self.args.share_prefill and not self.args.gradient_checkpointing
        own = batches.own_part(piece)
        one_prompt = math.gcd(len(own["completion_ids"]), self._group())
        with self.accelerator.autocast():
            logp = completion_logp(model, own, one_prompt, self.temperature, share)
        if "own_rows" in piece:
            logp = with_others(logp, self.accelerator)[: len(piece["completion_ids"])]
        return logp

    def _group(self) -> int:
        return self.num_generations if self.model.training else self.num_generations_eval

    def _compute_loss(self, model, inputs):
        """The loss of a pass, times the share of its mini-batch that it is."""
        logp = self._logp(model, inputs)  # (N, T)
        loss, metrics, weight = pass_loss(self.args, logp, inputs, self._group())
        self._means.add(metrics, weight)
        self.last_pass = self.state.global_step + 1, inputs, logp.detach()
        if not self.model.training:
            for name, value in self._means.take()[0].items():
                self._metrics["eval"][f"rapid/{name}"].append(value)
        return loss

    def _record_step(self, mini_batch: Batch, seconds: float) -> None:
        """Metrics of an optimizer step: of what was run, and of its whole mini-batch."""
        log = self._metrics["train"]
        means, run = self._means.take()
        means |= of_mini_batch(mini_batch, self.num_generations)
        for name, value in (means | {"run": run}).items():
            log[f"rapid/{name}"].append(value)
        log["step_time"].append(seconds)
