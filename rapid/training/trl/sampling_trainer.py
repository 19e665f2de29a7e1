"""GRPOTrainer without its loop: it still samples, grades, evaluates and logs.

RapidTrainer builds on it and knows nothing of TRL's ways. A method with @override is GRPOTrainer's
or transformers' Trainer's, which call it; its docstring says what they do without.
"""

import inspect
import math
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property
from typing import Any
from unittest.mock import patch

import torch
from accelerate.utils import is_peft_model, send_to_device
from accelerate.utils.memory import clear_device_cache
from datasets import Dataset, IterableDataset
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig
from trl import GRPOTrainer
from trl.data_utils import is_conversational
from trl.trainer.utils import use_adapter
from typing_extensions import override

from rapid.training import batches
from rapid.training.batches import Batch
from rapid.training.caches import sees_padding
from rapid.training.clock import AfterOptimizer, PhaseClock
from rapid.training.config import RapidConfig
from rapid.training.dropout import remove_dropout
from rapid.training.forward import patch_adaption_prompts
from rapid.training.generation import Decoder, decoding
from rapid.training.micro_batches import Chunk, take_shard
from rapid.training.notices import Notices
from rapid.training.processes import gather_batch
from rapid.training.refusals import (
    TEXT,
    FiniteWeights,
    check_rollouts,
    describe_sample,
    find_refused_arguments,
    note_on_error,
    refuse_completions,
    refuse_rewards,
)
from rapid.training.rewards import StreamedRewards, distinct_names
from rapid.training.sampler_check import SamplerCheck, computes_in_float32
from rapid.training.time_limit import TimeLimit
from rapid.training.trl import COLUMNS, LOSS_COLUMNS, REFUSED_COLUMNS, remember_packages
from rapid.training.trl.loss_trainer import TrlLossTrainer
from rapid.training.trl.micro_batch_trainer import MicroBatchTrainer
from rapid.training.trl.prompts import CheckedPrompts
from rapid.training.trl.resumable_trainer import ResumableTrainer
from rapid.training.trl.vllm import engine_like_the_policy, mend_weight_sync


class SamplingTrainer(ResumableTrainer, MicroBatchTrainer, TrlLossTrainer, CheckedPrompts):
    """GRPOTrainer without its loop. Arguments are GRPOTrainer's, with a `RapidConfig`.

    After `train`, `clock.seconds` has the wall-clock seconds of each phase.
    """

    args: RapidConfig
    processing_class: Any
    train_dataset: Any
    num_generations: int
    num_generations_eval: int
    _rewards_per_func: Tensor  # (N, functions), of all processes

    def __init__(self, model, reward_funcs, args, *arguments, **named):
        bound = inspect.signature(GRPOTrainer).bind(model, reward_funcs, args, *arguments, **named)
        if errors := [*find_refused_arguments(args, bound.arguments)]:
            raise ValueError("\n".join(errors))
        remember_packages()
        with engine_like_the_policy(args.seed):
            super().__init__(model, reward_funcs, args, *arguments, **named)
        self.reward_func_names = distinct_names(self.reward_func_names)
        patch_adaption_prompts(self.model)
        if args.disable_dropout:
            remove_dropout(self.model)
        self._examples: list[dict] = []  # the dataset's rows of the batch being sampled
        self._sampled_logp: list[Tensor] = []  # (T,) for each completion just sampled
        self._sampler_check = SamplerCheck()
        self._time_limit = TimeLimit.of(args)
        self._streamed: StreamedRewards | None = None
        if args.grading_workers:
            self._streamed = StreamedRewards(
                self.reward_funcs,
                args.grading_workers,
                lambda: {"trainer_state": self.state, "log_metric": self._log_metric},
                self._time_limit,
            )
        if self._time_limit:
            self.reward_funcs = self._time_limit.wrap_all(self.reward_funcs, self.reward_func_names)
        # From the last micro-batch to the end of the optimizer's step.
        self._optimizer_phase = ExitStack()
        self.add_callback(AfterOptimizer(self._optimizer_phase.close))
        self.add_callback(FiniteWeights())
        self.notices = Notices(args, self.accelerator.is_main_process)
        self.add_callback(self.notices)
        if self.rollout_func is not None:
            self.rollout_func = check_rollouts(self.rollout_func)
        if self.use_vllm:
            mend_weight_sync(self.vllm_generation, self.clock)

    @cached_property
    def clock(self) -> PhaseClock:
        """The seconds of each phase; also of a trainer that was made without `__init__`."""
        return PhaseClock()

    @property
    def same_prompts(self) -> bool:
        """Return whether all completions of a group have one prompt.

        An environment may say something else in each, and a `rollout_func` may make its own.
        """
        return self.rollout_func is None and self.environment_factories is None

    @property
    def group_size(self) -> int:
        """N_group: completions of a prompt, in training or in evaluation."""
        return self.num_generations if self.model.training else self.num_generations_eval

    def add_metrics(self, values: dict[str, float]) -> None:
        """Log these with the others: TRL logs the means of what `_metrics` has collected."""
        log = self._metrics["train" if self.model.training else "eval"]
        for name, value in values.items():
            log[name].append(value)

    # Prompts --------------------------------------------------------------------------------------

    @override
    def _get_dataloader(
        self,
        dataset,
        description,
        batch_size,
        sampler_fn=None,
        is_training=False,
        dataloader_key=None,
    ):
        """Load this process's part of an inference batch, however it is cut into steps.

        TRL loads per_device_train_batch_size * steps_per_generation rows, more than there are where
        n_step is no multiple of the processes. And it loads them anew in each of the H steps, and
        moves them to the device: here rows are kept meanwhile, and moved once they are needed.
        """
        if is_training:
            size = self.args.H * self.args.n_step
            batch_size = size // self.accelerator.num_processes
            if isinstance(dataset, Dataset):
                prompts = size // self.num_generations
                dataset = batches.RecentRows(dataset, prompts)
        loader = super()._get_dataloader(
            dataset, description, batch_size, sampler_fn, is_training, dataloader_key
        )
        if is_training:
            loader.device = None
        return loader

    @override
    def get_test_dataloader(self, test_dataset):
        """Load whole groups for `predict`; of a stream TRL loads each prompt once."""
        if isinstance(test_dataset, IterableDataset):
            return self.get_eval_dataloader(test_dataset)
        return super().get_test_dataloader(test_dataset)

    # Sampling -------------------------------------------------------------------------------------

    @override
    def _prepare_inputs(self, generation_batch):
        """Return the graded completions of an evaluation's batch, whose loss TRL then asks for.

        In training TRL would shuffle completions and buffer slices of them; there `training_step`
        asks for samples itself. TRL cuts an evaluation's batch where a process is full. Where that
        cuts groups, all processes take the loss of the whole batch, and run their part of it.
        TRL's own loss is of each completion by itself.
        """
        batch = super()._prepare_inputs(generation_batch)
        if not self.args.trls_loss:
            rows = len(batch["completion_ids"])
            if rows % self.group_size:
                batch = gather_batch(batch, self.accelerator, self._tokenizer.pad_token_id)
                batch = take_shard(
                    batch, rows, self.accelerator.process_index, self.accelerator.num_processes
                )
            batch = batches.mark_graded(batch, self.group_size)
        if self.beta:
            batch["reference_logp"] = self._reference_logp([batch])
        return batch

    def _reference_logp(self, chunk: Chunk) -> Tensor:
        """Return log-probabilities of a chunk, (N, T), under the policy before training.

        An adapter is left out; one that was trained before has a copy, which TRL calls "ref".
        """
        reference: Any = self.ref_model
        without: AbstractContextManager = nullcontext()
        if reference is None:
            reference, model = self.model, self.accelerator.unwrap_model(self.model)
            without = use_adapter(model, "ref" if "ref" in model.peft_config else None)
        with torch.no_grad(), without:
            return self._score_chunk(reference, chunk)

    def _score_chunk(self, model, chunk: Chunk) -> Tensor:
        """Return log pi of each token of a chunk, (N, T), without gradient."""
        raise NotImplementedError

    @override
    def _generate_and_score_completions(self, inputs) -> Batch:
        """Return the completions of these prompts, with `rewards` and `accuracy`, (N,), as sampled.

        TRL returns advantages. A reward is NaN where no function graded a completion. TRL would
        make a forward pass of all completions for log mu, unless gradient_accumulation_steps is a
        multiple of steps_per_generation: unless it samples anew for each optimizer step. To correct
        vLLM's it always does, here in parts of `micro_batch_size`. With beta it would make another,
        of the reference. What a `rollout_func` returns beside completions TRL writes into the
        dataset's rows, which the completions of a group may share: each gets a copy.
        """
        inputs = [send_to_device(dict(row), self.accelerator.device) for row in inputs]
        self._examples, self._sampled_logp, self._sampler_check.logps = inputs, [], []
        if self._streamed:
            self._streamed.forget()
        args = self.args
        steps = patch.object(args, "gradient_accumulation_steps", args.steps_per_generation)
        rows = patch.object(args, "per_device_train_batch_size", args.micro_batch_size)
        at = f"at step {self.state.global_step + 1}, with {len(inputs)} completions, the first of "
        note = note_on_error(at + describe_sample(inputs[0].get("prompt")))
        with self.clock.phase("other"), note, steps, rows, patch.object(self, "beta", 0.0):
            sampled = super()._generate_and_score_completions(inputs)
        if sampled.keys() & REFUSED_COLUMNS:
            raise ValueError(TEXT)
        columns = LOSS_COLUMNS if self.args.trls_loss else COLUMNS
        batch = {column: sampled[name] for name, column in columns.items() if name in sampled}
        if self.rollout_func is not None:
            batch.pop("sampler_logp", None)  # of whatever policy, or zeros because TRL wants some
        if self._sampled_logp:  # (N, T); the sampler may have gone on beyond the ends
            logp, width = pad_sequence(self._sampled_logp, True), batch["completion_ids"].size(1)
            batch["sampler_logp"] = pad(logp, (0, width - logp.size(1)))
        rewards = self._rewards_per_func  # (N, functions), of all processes
        weighted = (rewards * self.reward_weights.to(rewards.device)).nansum(1)
        weighted = weighted.masked_fill(rewards.isnan().all(1), math.nan)
        first = self.accelerator.process_index * len(inputs)
        local = slice(first, first + len(inputs))
        batch["rewards"], batch["accuracy"] = weighted[local], rewards[local, 0].nan_to_num()
        self.completions_sampled += len(inputs)
        self._sampler_check.run(self, batch)
        if not self.args.trls_loss:
            self._log_advantages(weighted)
        return batch

    def _log_advantages(self, rewards: Tensor) -> None:
        """Show the objective's advantages in the table of completions, as these were sampled.

        `rewards` (N,) are of all processes. TRL's advantages are those of its own loss. A group
        that was not graded has none.
        """
        columns = {"rewards": rewards, "accuracy": rewards}
        graded = batches.mark_graded(columns, self.group_size)
        advantages = self.args.algorithm.advantages(
            self.args.settings, graded["rewards"], self.group_size
        )
        log = self._logs["advantages"]
        for _ in range(min(len(advantages), len(log))):
            log.pop()
        log.extend((advantages * graded["graded"]).tolist())

    @override
    def _generate(self, prompts):
        """Count TRL's sampling, from prompts to completions as texts, to its phase."""
        with self.clock.phase("sampling"):
            return super()._generate(prompts)

    @override
    def _generate_single_turn(
        self, prompt_ids, images, multimodal_fields, num_generations, has_tool_images=False
    ):
        """Sample in batches of `sampling_batch_size`; TRL samples all at once.

        TRL takes num_generations rows for a group; where groups are sharded each completion is by
        itself.
        """
        if len(prompt_ids) % num_generations:
            num_generations = 1
        completion_ids: list[list[int]] = []
        logps: list[list[float]] = []
        end = 0
        while end < len(prompt_ids):
            start, end = end, self._find_batch_end(prompt_ids, end)
            with self._neutral_generation_config(), self._decoding(start) as recorded:
                ids, logp = super()._generate_single_turn(
                    prompt_ids[start:end],
                    images,
                    multimodal_fields,
                    num_generations,
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
        """Return where a batch of prompts ends: before padding where the policy would see it."""
        end = min(start + (self.args.sampling_batch_size or len(prompt_ids)), len(prompt_ids))
        if sees_padding(self.model):
            length = len(prompt_ids[start])
            return next((n for n in range(start, end) if len(prompt_ids[n]) != length), end)
        return end

    def _neutral_generation_config(self) -> AbstractContextManager:
        """Sample from the policy itself where completions are weighed.

        transformers takes what TRL leaves open from the model's generation_config, min_p or
        suppress_tokens for example. There it knows no such settings meanwhile.
        """
        if self.use_vllm or self.args.H == 1:
            return nullcontext()
        model = self.accelerator.unwrap_model(self.model)
        base = model.get_base_model() if is_peft_model(model) else model
        return patch.object(base, "generation_config", GenerationConfig())

    def _decoding(self, start: int) -> AbstractContextManager[list[Tensor]]:
        """Have transformers sample by `Decoder` from row `start`, and yield log mu if it is needed.

        TRL calls `model.generate` with nothing of the kind. With tools it calls it once a turn, for
        those that go on: a forward pass finds log mu, and all are graded in the end.
        """
        if self.use_vllm:
            return nullcontext([])
        early = self.model.training and not self.tools

        def on_end(row: int, ids: list[int]) -> None:
            self._grade_early(start + row, ids)

        decoder = Decoder(
            share_prefill=self.args.share_prefill,
            record=early and self.args.H > 1 and self.use_sampler_logps(),
            on_end=on_end if early and self._streamed else None,
        )
        model = self.accelerator.unwrap_model(self.model)
        return decoding(model, decoder, self._sampler_check.collect(self))

    def use_sampler_logps(self) -> bool:
        """Return whether log mu is the sampler's: it is the policy's up to rounding, or trusted."""
        return self.args.reuse_logp and (computes_in_float32(self) or self.args.trust_sampler)

    # Grading --------------------------------------------------------------------------------------

    def _grade_early(self, row: int, ids: list[int]) -> None:
        """Start to grade a completion that has ended, as the text that TRL will make of it."""
        if not self._streamed or not self.model.training or self.tools:
            return
        example = self._examples[row]
        text = self.processing_class.decode(ids, skip_special_tokens=True)
        if is_conversational(example):
            if getattr(self._tokenizer, "response_template", None) is not None:
                return  # TRL parses what the model says: graded when all are sampled
            text = [{"role": "assistant", "content": text}]
        self._streamed.submit(row, example, text, ids)

    @override
    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        """Keep each function's rewards, of which TRL's caller returns advantages only."""
        with self.clock.phase("grading"):
            if self._streamed and self.model.training:
                rewards = self._streamed.collect(inputs, completions, completion_ids_list)
                rewards = self.accelerator.gather(rewards.to(self.accelerator.device))
            else:
                rewards = super()._calculate_rewards(
                    inputs, prompts, completions, completion_ids_list
                )
        if self._time_limit:
            rewards = self._time_limit.drop_late(self, rewards, len(prompts))
        first = self.accelerator.process_index * len(prompts)
        refuse_rewards(rewards, self.reward_func_names, first, prompts, completions)
        self._rewards_per_func = rewards
        return rewards

    # Steps ----------------------------------------------------------------------------------------

    @contextmanager
    def _optimizer_step(self, model):
        """Frame the micro-batches of an optimizer step.

        Trainer's `training_step`, which is not called, would set the modes and run one batch. A
        step without any is taken all the same, with gradients of zero: its momentum moves.
        """
        model.train()
        if callable(train := getattr(self.optimizer, "train", None)):
            train()
        yield
        if (period := self.args.torch_empty_cache_steps) and self.state.global_step % period == 0:
            clear_device_cache()
        self._optimizer_phase.enter_context(self.clock.phase("backpropagation"))
