"""GRPOTrainer without its training loop: sampling, grading, evaluation and logging.

RapidTrainer is a subclass and does not depend on TRL's internals itself. GRPOTrainer or
transformers' Trainer call the methods marked @override; the docstring of each says what TRL or
Trainer would do instead. Terms (inference batch, H, chunk, log mu): see `rapid.training`.
"""

import inspect
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from copy import deepcopy
from functools import cached_property, partial
from math import gcd
from typing import Any
from unittest.mock import patch

import torch
from accelerate.utils import is_peft_model, send_to_device
from accelerate.utils.memory import clear_device_cache
from torch import Tensor
from transformers import GenerationConfig
from trl import GRPOTrainer
from trl.data_utils import is_conversational
from trl.trainer.utils import use_adapter
from typing_extensions import override

from rapid.training import batches
from rapid.training.batches import Batch
from rapid.training.caches import depends_on_padding
from rapid.training.clock import OptimizerStepCallback, PhaseClock
from rapid.training.config import RapidConfig
from rapid.training.dropout import remove_dropout
from rapid.training.forward import avoid_cudnn_attention, patch_adaption_prompt_adapter
from rapid.training.generation import Decoder, use_decoder
from rapid.training.memory import advise_if_out_of_memory
from rapid.training.micro_batches import MicroBatches, take_shard
from rapid.training.notices import Notices
from rapid.training.processes import gather_batch
from rapid.training.refusals import (
    TEXT_ONLY_ERROR,
    FiniteWeights,
    check_rollouts,
    describe_sample,
    find_refused_arguments,
    note_on_error,
    refuse_completions,
    refuse_rewards,
)
from rapid.training.rewards import StreamedRewards, make_names_distinct, wrap_functions
from rapid.training.sampler_check import SamplerCheck, computes_in_float32
from rapid.training.time_limit import TimeLimit
from rapid.training.trl import BATCH_COLUMNS, LOSS_COLUMNS, REFUSED_COLUMNS, cache_package_lookups
from rapid.training.trl.completions_table import CompletionsTableTrainer
from rapid.training.trl.loss_trainer import TrlLossTrainer
from rapid.training.trl.micro_batch_trainer import MicroBatchTrainer
from rapid.training.trl.placement import use_one_device
from rapid.training.trl.prompts import PromptTrainer
from rapid.training.trl.resumable_trainer import ResumableTrainer
from rapid.training.trl.vllm import (
    match_engine_to_policy,
    patch_weight_sync,
    refuse_unprocessed_logprobs,
    report_ended_completions,
)


class SamplingTrainer(
    ResumableTrainer, MicroBatchTrainer, TrlLossTrainer, PromptTrainer, CompletionsTableTrainer
):
    """GRPOTrainer without its training loop. Arguments are the same, with a `RapidConfig`.

    After `train`, `clock.seconds` has the wall-clock seconds of each phase.
    """

    args: RapidConfig
    processing_class: Any
    train_dataset: Any
    num_generations: int
    num_generations_eval: int
    _rewards_per_func: Tensor  # (N, reward functions), rows of all processes

    def __init__(self, model, reward_funcs, args, *arguments, **kwargs):
        bound = inspect.signature(GRPOTrainer).bind(model, reward_funcs, args, *arguments, **kwargs)
        if errors := [*find_refused_arguments(args, bound.arguments)]:
            raise ValueError("\n".join(errors))
        cache_package_lookups()  # else accelerate repeats them whenever it unwraps a model
        with match_engine_to_policy(args.seed), use_one_device(args, model):
            super().__init__(model, reward_funcs, args, *arguments, **kwargs)
        self.num_iterations = args.reuse  # TRL's sampler repeats prompts for reuse * H steps
        self.reward_func_names = make_names_distinct(self.reward_func_names)
        patch_adaption_prompt_adapter(self.model)
        if args.disable_dropout:
            remove_dropout(self.model)
        self._examples: list[dict] = []  # dataset rows of the batch being sampled
        self._sampled_logp: list[Tensor] = []  # log mu, (T,), of each completion of that batch
        # Compares the sampler with the policy.
        self._sampler_check = SamplerCheck(partial(self.accelerator.reduce, reduction="mean"))
        self._time_limit = TimeLimit.from_config(args)
        # Grades completions while others are sampled.
        self._early_grading = StreamedRewards.from_trainer(self, self._time_limit)
        # Holds the phase "backpropagation" open from a step's gradient to the optimizer's step.
        self._optimizer_phase = ExitStack()
        self.add_callback(OptimizerStepCallback(self._optimizer_phase.close))
        self.add_callback(FiniteWeights())
        self.notices = Notices(args, self.accelerator.is_main_process)  # warnings of a run
        self.add_callback(self.notices)
        if self.rollout_func is not None:
            self.rollout_func = check_rollouts(self.rollout_func, args.use_rollout_logps)
        if self.use_vllm:
            refuse_unprocessed_logprobs(self.vllm_generation, self.temperature)
            patch_weight_sync(self.vllm_generation, self.clock)

    @cached_property
    def clock(self) -> PhaseClock:
        """The clock of the training loop's phases, created on first use."""
        return PhaseClock()

    @property
    def group_size(self) -> int:
        """N_group: completions per prompt in training or evaluation, by the model's mode."""
        return self.num_generations if self.model.training else self.num_generations_eval

    def add_metrics(self, values: dict[str, float]) -> None:
        """Add metrics to TRL's `_metrics`, of which TRL logs the mean over the logging interval."""
        log = self._metrics["train" if self.model.training else "eval"]
        for name, value in values.items():
            log[name].append(value)

    @contextmanager
    def keep_metrics(self):
        """Drop the metrics of completions that are sampled within the context, but count tokens."""
        with patch.object(self, "_metrics", deepcopy(self._metrics)):
            yield
        self._metrics["train"]["num_tokens"] = [self.state.num_input_tokens_seen]

    # Sampling -------------------------------------------------------------------------------------

    @override
    def _prepare_inputs(self, generation_batch):
        """Return the graded completions of an evaluation batch, on which TRL computes the loss.

        Only evaluation calls this: `training_step` samples without TRL's shuffled buffer. The rows
        of a process may end within a group, and losses other than TRL's need whole groups. Then
        each process gets all completions for the loss, but runs the model on its own rows only.
        """
        batch = super()._prepare_inputs(generation_batch)
        if not self.args.uses_trl_loss:
            rows = len(batch["completion_ids"])
            if rows % self.group_size:
                batch = gather_batch(batch, self.accelerator, self._tokenizer.pad_token_id)
                batch = take_shard(
                    batch, rows, self.accelerator.process_index, self.accelerator.num_processes
                )
            batch = batches.mark_graded(batch, self.group_size)
        if self.beta:
            batch["reference_logp"] = self._compute_reference_logp([batch])
        return batch

    def _compute_reference_logp(self, chunk: MicroBatches) -> Tensor:
        """Return log-probabilities of a chunk, (N, T), under the policy before training.

        A policy with an adapter has no reference model. Its reference is the base model alone, or
        with a copy of the adapter that TRL names "ref", if the adapter was already trained.
        """
        reference: Any = self.ref_model  # None if the policy has an adapter
        reference_adapter: AbstractContextManager = nullcontext()
        if reference is None:
            reference, model = self.model, self.accelerator.unwrap_model(self.model)
            reference_adapter = use_adapter(model, "ref" if "ref" in model.peft_config else None)
        with torch.no_grad(), reference_adapter:
            return self._compute_chunk_log_pi(reference, chunk)

    def _compute_chunk_log_pi(self, model, chunk: MicroBatches) -> Tensor:
        """Return log pi of each token of a chunk under `model`, (N, T)."""
        raise NotImplementedError

    @override
    def _generate_and_score_completions(self, inputs) -> Batch:
        """Sample and grade a completion for each row of `inputs`. TRL returns no rewards.

        Returns:
            `BATCH_COLUMNS`, or `LOSS_COLUMNS` for TRL's own loss; `rewards` (N,), weighted sums
            over reward functions, NaN if all of them returned None; `accuracy` (N,), the first
            function's rewards, NaN if it returned None; `length` (N,), tokens that were sampled.
        """
        # A group's completions share rows. TRL writes into them, reward functions into arrays.
        inputs = [send_to_device(deepcopy(row), self.accelerator.device) for row in inputs]
        self._examples, self._sampled_logp, self._sampler_check.logps = inputs, [], []
        if self._early_grading:
            self._early_grading.cancel()
        args = self.args
        # TRL makes forward passes for log mu, unless one step takes all micro-batches of the batch,
        # and for the reference, unless beta is 0. The patches postpone them until they are needed.
        steps = patch.object(args, "gradient_accumulation_steps", args.steps_per_batch)
        # Rows of the forward pass that TRL still makes to correct vLLM's log-probabilities.
        rows = patch.object(args, "per_device_train_batch_size", args.micro_batch_size)
        step = self.state.global_step + self.model.training  # in evaluation, the last step
        place = f"at step {step}, with {len(inputs)} completions, the first"
        note = note_on_error(f"{place} is of {describe_sample(inputs[0].get('prompt'))}")
        with self.clock.phase("other"), note, steps, rows, patch.object(self, "beta", 0.0):
            sampled = super()._generate_and_score_completions(inputs)
        if sampled.keys() & REFUSED_COLUMNS:
            raise ValueError(TEXT_ONLY_ERROR)
        columns = LOSS_COLUMNS if self.args.uses_trl_loss else BATCH_COLUMNS
        batch = {column: sampled[name] for name, column in columns.items() if name in sampled}
        if self.rollout_func is not None:  # without use_rollout_logps, its logps may be dummies
            rollout_logp = batch.pop("sampler_logp", None)
            batch |= {"behavior_logp": rollout_logp} if args.use_rollout_logps else {}
        if self._sampled_logp:  # may be wider than ids: TRL cuts completions at their end token
            batch["sampler_logp"] = batches.pad_rows(self._sampled_logp, batch)
        weighted = batches.add_rewards(self._rewards_per_func, self.reward_weights)
        first = self.accelerator.process_index * len(inputs)
        local = slice(first, first + len(inputs))  # rows of this process
        batch["rewards"], batch["accuracy"] = weighted[local], self._rewards_per_func[local, 0]
        batch["length"] = torch.tensor(self._sampled_lengths, device=weighted.device)
        self.completions_sampled += len(inputs)
        self._sampler_check.run(self, batch)
        if self._sampled_logp and not self.uses_sampler_logps():
            del batch["sampler_logp"]  # the check has just forbidden it; later rounds have none
        if not self.args.uses_trl_loss:
            self._log_advantages(weighted, self.group_size)
        return batch

    @override
    def _generate(self, prompts):
        """Count the time of TRL's sampling, from prompts to texts, as the phase "sampling"."""
        with self.clock.phase("sampling"):
            sampled = super()._generate(prompts)
        _, ids, tool_mask, *_ = sampled  # the mask is 1 for sampled tokens, and may be None
        self._sampled_lengths = [*map(sum, tool_mask)] if tool_mask else [*map(len, ids)]
        return sampled

    @override
    def _generate_single_turn(
        self, prompt_ids, images, multimodal_fields, num_generations, has_tool_images=False
    ):
        """Sample in batches of `sampling_batch_size`; TRL samples all prompts in one batch.

        TRL takes each num_generations rows as a group, and may sample from the first row's prompt
        only. A batch may not consist of whole groups, as processes may share a group, and groups of
        evaluation have a size of their own. It is then passed as smaller groups: gcd is the largest
        size that divides the rows of this process, its batches and its groups.
        """
        completion_ids: list[list[int]] = []
        logps: list[list[float]] = []
        end = 0
        while end < len(prompt_ids):
            start, end = end, self._find_batch_end(prompt_ids, end)
            advice = advise_if_out_of_memory(self._advise_on_memory(end - start))
            with advice, self._neutral_generation_config(), self._use_decoder(start) as recorded:
                ids, logp = super()._generate_single_turn(
                    prompt_ids[start:end],
                    images,
                    multimodal_fields,
                    gcd(len(prompt_ids), end - start, num_generations),
                    has_tool_images,
                )
            refuse_completions([row.get("prompt") for row in self._examples[start:end]], ids)
            for row, completion in enumerate(ids, start):
                self._grade_early(row, completion)
            completion_ids += ids
            logps += logp or []
            self._sampled_logp += recorded
        return completion_ids, logps or None

    def _find_batch_end(self, prompt_ids: list[list[int]], start: int) -> int:
        """Return the end index of the batch of prompts that begins at `start`.

        A policy whose log-probabilities depend on padding gets prompts of one length only.
        """
        end = min(start + (self.args.sampling_batch_size or len(prompt_ids)), len(prompt_ids))
        if depends_on_padding(self.model):
            length = len(prompt_ids[start])
            return next((n for n in range(start, end) if len(prompt_ids[n]) != length), end)
        return end

    def _advise_on_memory(self, count: int) -> str:
        """Return what to change if memory runs out while `count` completions are sampled."""
        if self.use_vllm:
            share = self.args.vllm_gpu_memory_utilization
            change = f"lower vllm_gpu_memory_utilization={share}, vLLM's share of the GPU's memory"
        elif count == 1:
            change = f"lower max_completion_length={self.args.max_completion_length}"
        else:
            change = f"set sampling_batch_size below {count}, per process"
        return f"memory ran out while completions were sampled, {count} at once: {change}"

    def _neutral_generation_config(self) -> AbstractContextManager:
        """Hide the model's own generation_config, if an inference batch is used for several steps.

        transformers takes settings that TRL leaves unset, such as min_p, from the model's
        generation_config. But importance weights need samples of the policy itself.
        """
        if self.use_vllm or self.args.steps_per_batch == 1:
            return nullcontext()
        model = self.accelerator.unwrap_model(self.model)
        base = model.get_base_model() if is_peft_model(model) else model
        return patch.object(base, "generation_config", GenerationConfig())

    def _use_decoder(self, start: int) -> AbstractContextManager[list[Tensor]]:
        """Let TRL's `model.generate` sample with a `Decoder`, for the rows from `start` on.

        Yields a list, which receives log mu, (T,), of each completion if `uses_sampler_logps`. With
        tools TRL calls `generate` once per turn. Then a forward pass computes log mu instead, and
        grading starts after the last turn. With vLLM the list stays empty.
        """
        trains_one_turn = self.model.training and not self.tools

        def grade(row: int, ids: list[int]) -> None:
            self._grade_early(start + row, ids)

        on_end = grade if trains_one_turn and self._early_grading else None
        if self.use_vllm:
            return report_ended_completions(self.vllm_generation, on_end)
        decoder = Decoder(
            share_prefill=self.args.share_prefill is not False,
            record=trains_one_turn and self.args.steps_per_batch > 1 and self.uses_sampler_logps(),
            on_end=on_end,
        )
        model = self.accelerator.unwrap_model(self.model)
        checked_logps = self._sampler_check.get_recording_list(self)  # only for the first batch
        return use_decoder(model, decoder, checked_logps, self.accelerator.autocast)

    def uses_sampler_logps(self) -> bool:
        """Return whether log mu is taken from the sampler: see `reuse_logp`, `trust_sampler`.

        Until the first inference batch has been checked, the sampler counts as exact.
        """
        trusted = self.args.trust_sampler
        if trusted is None:
            trusted = self._sampler_check.is_exact is not False
        return self.args.reuse_logp and (computes_in_float32(self) or trusted)

    # Grading --------------------------------------------------------------------------------------

    def _grade_early(self, row: int, ids: list[int]) -> None:
        """Decode a finished completion as TRL does, and start grading while others are sampled."""
        if not self._early_grading or not self.model.training or self.tools:
            return
        example = self._examples[row]
        text = self.processing_class.decode(ids, skip_special_tokens=True)
        if is_conversational({"prompt": example["prompt"]}):
            if getattr(self._tokenizer, "response_template", None) is not None:
                return  # TRL parses the response with this template, after sampling
            text = [{"role": "assistant", "content": text}]
        self._early_grading.submit(row, example, text, ids)

    @override
    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        """Return rewards, (N, functions). Store them, as TRL's caller returns advantages only."""
        with self.clock.phase("grading"):
            if self._early_grading:
                rewards = self._early_grading.collect(inputs, completions, completion_ids_list)
                rewards = self.accelerator.gather(rewards.to(self.accelerator.device))
            else:
                with patch.object(self, "reward_funcs", wrap_functions(self, self._time_limit)):
                    rewards = super()._calculate_rewards(
                        inputs, prompts, completions, completion_ids_list
                    )
        if self._time_limit:
            rewards = self._time_limit.mask_timed_out(self, rewards, len(prompts))
        first = self.accelerator.process_index * len(prompts)
        refuse_rewards(rewards, self.reward_func_names, first, prompts, completions)
        self._rewards_per_func = rewards
        return rewards

    # Steps ----------------------------------------------------------------------------------------

    @contextmanager
    def _gradient_context(self, model):
        """Run `training_step` within this context, with model and optimizer in training mode.

        At its end the phase "backpropagation" begins, which lasts until the optimizer has stepped.
        The optimizer also steps if no micro-batch was run, as in a mini-batch of equal rewards. The
        gradient is then 0, and Adam's momentum still moves the weights.
        """
        model.train()
        if callable(train := getattr(self.optimizer, "train", None)):
            train()
        with avoid_cudnn_attention():
            yield
        if (period := self.args.torch_empty_cache_steps) and self.state.global_step % period == 0:
            clear_device_cache()
        self._optimizer_phase.enter_context(self.clock.phase("backpropagation"))
