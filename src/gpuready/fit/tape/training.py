"""Record a training job: the weights, then steps of forward, backward, clipping and the optimizer."""

from collections.abc import Callable, Iterable

from gpuready.fit.job.model_parser import parse_model_config
from gpuready.fit.job.model_shape import ModelShape, refuse_unknown_layers
from gpuready.fit.job.records import FitJob, FitUndecided, GpuCard
from gpuready.fit.tape import liger
from gpuready.fit.tape import loss as losses
from gpuready.fit.tape.autograd import Tape, TapeMemory, Tensor
from gpuready.fit.tape.checkpointing import Checkpointing
from gpuready.fit.tape.ddp_fsdp import FlatShards, FsdpShards, new_ddp_buckets, rebuild_ddp_buckets
from gpuready.fit.tape.decoder import DecoderModel
from gpuready.fit.tape.layer_weights import adapts_experts
from gpuready.fit.tape.linear_layers import WeightMaker
from gpuready.fit.tape.loss import inplace_log_probabilities, log_probabilities
from gpuready.fit.tape.optimizers import JobOptimizer
from gpuready.fit.tape.torch_ops import TorchOps
from gpuready.fit.tape.weight_shards import gathers_by_layer
from gpuready.fit.tape.zero3 import Zero3Weights
from gpuready.fit.tape.zero12 import ZeroPartitions


class TrainingRun:
    """Everything on the device during training."""

    def __init__(self, job: FitJob, card: GpuCard, rank: int | None = None) -> None:
        self.job = job
        self.tape = tape = Tape()
        self.ops = ops = TorchOps(tape, workspace=cublas_workspace_size(card))
        ops.lora_dropout = job.lora_dropout
        ops.double_quant = job.double_quant
        ops.half_is_fp16 = job.precision == "fp16"
        shape = tensor_parallel_shape(parse_model_config(job.model), job.tensor_parallel)
        whole = shape.experts and job.method != "full" and job.lora_targets in ("all", "all-linear")
        if whole and adapts_experts(shape) and (job.dora or job.lora_dropout):
            raise FitUndecided(
                "peft adapts the experts of this model as a whole, and refuses to with DoRA or dropout: "
                "name the layers, as in --lora-targets q_proj,k_proj,v_proj,o_proj"
            )
        if job.dora:
            refuse_unknown_layers("DoRA")
        self.rows = job.micro_batch * (2 if job.dpo else 1)
        maker = WeightMaker(ops, job)
        self.model = DecoderModel(ops, shape, job, card, maker)
        if job.method != "full" and not maker.trained:
            raise ValueError(
                f"no layer of the model is called {_lora_target_names(job)}, so there is nothing to train: name others (--lora-targets)"
            )
        self.reference = None
        if job.dpo and (job.method == "full" or job.loop == "plain"):  # the Trainer uses the adapter's base model
            other = job.replace(method="full", quant="", dpo=False)
            self.reference = DecoderModel(ops, shape, other, card, WeightMaker(ops, other, trained=False))
            self.reference.training = False
        self.maker = maker
        self.autocast = 2 if job.precision.startswith("amp") or job.autocast else 0
        self.run_layer: Callable[..., Tensor] = lambda call, x, *_: call(x)
        if job.checkpointing != "none":
            self.run_layer = Checkpointing(ops, job.checkpointing == "reentrant", job.offload == "activations")
        self._set_up_parallelism(card, rank)
        tape.mark_phase("build")

    def _set_up_parallelism(self, card: GpuCard, rank: int | None) -> None:
        """Set up what several ranks change: shards of weights and state, and buffers."""
        job, ops, maker = self.job, self.ops, self.maker
        self.shards: FsdpShards | None = None
        self.zero: ZeroPartitions | Zero3Weights | None = None
        owned = maker.trained
        tables = maker.embeddings if job.loop == "trainer" else []
        if gathers_by_layer(job):
            kind = FlatShards if job.fsdp_version == 1 else FsdpShards
            self.shards = kind(ops, self.model, job, maker.trained)
            ops.on_leaf_gradient = self.shards.on_leaf_gradient
            self.run_layer = self.shards.wrap_layer_runner(self.run_layer, len(self.model.layers))
            owned = list(self.shards.owned.values())
        elif job.zero == 3:
            ops.tape.mark_phase("load")
            self.zero = ops.zero3 = Zero3Weights(ops, self.model, job, maker.trained)
            self.run_layer = self.zero.wrap_layer_runner(self.run_layer)
        elif job.zero:
            ops.tape.mark_phase("load")
            self.zero = ZeroPartitions(ops, job, card, maker.trained, rank)
        self.ddp_buckets = new_ddp_buckets(ops, job, maker.trained)
        groups = [owned]
        if self.zero is not None:  # DeepSpeed steps over flat fp32 shards
            ops.on_leaf_gradient = self.zero.on_leaf_gradient
            groups, tables = [[one] for one in self.zero.masters], []
        self.optimizers = [JobOptimizer(ops, job.optimizer, group, tables) for group in groups]
        for optimizer in self.optimizers:
            optimizer.on_host = job.offload in ("optimizer", "parameters")

    def record_tape(self) -> Tape:
        """Record the tape of the whole job."""
        job, tape, ops = self.job, self.tape, self.ops
        batch = ops.new_scratch(8 * self.rows * job.seq)
        stretches: dict[int, RepeatedStretch] = {}
        first = int(job.zero == 3)  # the step that later ones repeat: ZeRO 3 only records in the first
        for step in range(job.steps):
            if step == 1:
                rebuild_ddp_buckets(ops, job, self.maker.trained, self.ddp_buckets)
            for micro in range(min(job.accumulation, 2)):  # from the second on they are the same
                tag = f"{step}" if job.accumulation == 1 else f"{step}.{micro}"
                alike = 0 if job.zero == 3 else micro
                if alike in stretches:
                    stretches[alike].append_to_tape(tag)
                    continue
                stretch = RepeatedStretch(tape, len(tape.events), len(tape.kinds))
                self.run_micro_step(tag, boundary=micro == min(job.accumulation, 2) - 1)
                if (
                    step == first
                    and alike == micro
                    and stretch.learn_events(tag, self._gradient_holders(), ops.persistent_births())
                ):
                    stretches[micro] = stretch
            if job.clip and self.zero is None:
                self.optimizers[0].clip_gradients()
            tape.mark_phase(f"clip{step}")
            self.zero.step_optimizers(self.optimizers) if self.zero else self.optimizers[0].step()
            tape.mark_phase(f"opt{step}")
            self.optimizers[0].zero_grad()
            tape.mark_phase(f"zero{step}")
        del batch
        return tape

    def _gradient_holders(self) -> list[Tensor]:
        """Return the tensors that can hold a gradient."""
        return [parameter for optimizer in self.optimizers for parameter in optimizer.parameters]

    def run_micro_step(self, tag: str, boundary: bool) -> None:
        ops, tape = self.ops, self.tape
        ops.autocast = self.autocast
        if self.shards is not None:
            self.shards.gather_group(-1)
        if ops.zero3 is not None:
            ops.zero3.begin_forward()
        kept: list[Tensor] = []
        loss = self.dpo_loss(tag) if self.job.dpo else self.forward(kept)
        ops.autocast = 0
        ops.autocast_cache = {}
        if self.job.accumulation > 1 or self.job.precision == "amp-fp16":
            loss = ops.scalar_op(loss)
        if self.shards is not None:
            self.shards.last_flat = None
        tape.mark_phase(f"fwd{tag}")
        ops.in_backward = True
        ones: list[Tensor | None] = [ops.new_empty((), 4)]
        if self.shards is not None:
            self.shards.prefetch_last_layer()
        if ops.zero3 is not None:
            ops.zero3.enter_module([])
        ops.backward(loss, ones)
        del loss
        kept.clear()
        ops.in_backward = False
        if self.shards is not None:
            self.shards.finish_backward()
        if self.zero is not None:
            self.zero.finish_backward(boundary)
        tape.mark_phase(f"bwd{tag}")

    def forward(self, kept: list[Tensor]) -> Tensor:
        job, model = self.job, self.model
        hidden = model.forward(self.rows, job.seq, self.run_layer)
        if job.loss in ("fused", "liger"):
            return liger.liger_fused_loss(model, hidden)
        self.tape.kind = "loss"
        if job.loss != "plain":
            return self._policy_loss(hidden)
        logits = model.compute_logits(hidden)
        if job.keep_outputs:
            kept.append(self.ops.detach(logits))
        loss = model.compute_loss(hidden, logits)
        self.tape.kind = "activations"
        return loss

    def _policy_loss(self, hidden: Tensor) -> Tensor:
        """The loss of a policy: a log-probability for each token, and no cross entropy in fp32; or one of values."""
        if self.job.loss == "value":
            return losses.mean_loss(self.ops, hidden)
        ops, score = self.ops, inplace_log_probabilities if self.job.loss == "logprob_inplace" else log_probabilities
        scores = score(ops, losses.compute_logits(self.model, hidden))
        self.tape.kind = "activations"
        return losses.mean_loss(ops, scores)

    def dpo_loss(self, tag: str) -> Tensor:
        """The DPO loss: the reference's log-probabilities first, without a graph."""
        ops, job = self.ops, self.job
        ops.grad_enabled = False
        model = self.reference or self.model
        plain: Callable[..., Tensor] = lambda call, x, *_: call(x)  # noqa: E731
        logits = losses.compute_logits(model, model.forward(self.rows, job.seq, plain))
        theirs = log_probabilities(ops, logits)  # the model has returned: its hidden states are freed
        del logits
        ops.grad_enabled = True
        self.tape.mark_phase(f"ref{tag}")
        logits = losses.compute_logits(self.model, self.model.forward(self.rows, job.seq, self.run_layer))
        mine = log_probabilities(ops, logits)
        del logits
        return losses.mean_loss(ops, ops.add(mine, theirs))


def tensor_parallel_shape(shape: ModelShape, ranks: int) -> ModelShape:
    """Return the part of every layer that one tensor-parallel rank computes."""
    if ranks == 1:
        return shape
    for name in ("heads", "inner"):
        if getattr(shape, name) % ranks:
            raise FitUndecided(
                f"{ranks} tensor-parallel ranks do not divide the model's {name} ({getattr(shape, name)})"
            )
    return shape.replace(
        heads=shape.heads // ranks,
        kv_heads=max(1, shape.kv_heads // ranks),
        inner=shape.inner // ranks,
        expert_inner=shape.expert_inner // ranks,
        shared_inner=shape.shared_inner // ranks,
    )


def cublas_workspace_size(card: GpuCard) -> int:
    """Return the workspace of a cuBLAS handle: 32 MiB from Hopper on, 8 MiB + 128 KiB before."""
    return 32 << 20 if int(card.capability.split(".")[0]) >= 9 else (8 << 20) + (128 << 10)


def _lora_target_names(job: FitJob) -> str:
    names = (job.lora_targets,) if isinstance(job.lora_targets, str) else job.lora_targets
    return " or ".join(map(str, names[:4]))


class RepeatedStretch:
    """What a stretch of the tape allocates and frees, numbered from 0, and which parameters get a gradient."""

    def __init__(self, tape: Tape, start: int, first: int) -> None:
        self.tape, self.first_event, self.first_birth = tape, start, first  # first event and first allocation
        self.parts: list[tuple[str, list[int]]] = []  # phases, each with its events
        self.kinds: list[str] = []
        self.ops: list[str] = []
        self.grads: list[tuple[Tensor, Tensor, int | None]] = []  # parameter, its gradient, and the allocation of that

    def learn_events(self, tag: str, holders: Iterable[Tensor], not_repeated: set[int]) -> bool:
        """Whether the tape from the start to its end can be repeated; ``not_repeated`` are one-time allocations."""
        tape, first = self.tape, self.first_birth
        kept = [n for n in range(first, len(tape.kinds)) if n not in not_repeated]
        number = {old: new for new, old in enumerate(kept)}
        still_live = set(number)
        phase_events: list[int] = []
        birth = first
        for event in tape.events[self.first_event :]:
            if event.__class__ is str:
                self.parts.append((str(event).removesuffix(tag), phase_events))
                phase_events = []
            elif event >= 0:  # type: ignore[operator]
                if birth not in not_repeated:
                    phase_events.append(event)  # type: ignore[arg-type]
                birth += 1
            elif ~event in still_live:  # type: ignore[operator]
                still_live.remove(~event)  # type: ignore[operator]
                phase_events.append(~number[~event])  # type: ignore[operator]
            else:
                return False
        for holder in holders:
            grad = holder.grad
            if grad is not None and (grad.memory is None or grad.memory.number in still_live):
                at = None if grad.memory is None else number[grad.memory.number]
                self.grads.append((holder, Tensor(None, grad.shape, grad.width), at))
        self.kinds = [tape.kinds[n] for n in kept]
        self.ops = [tape.ops[n] for n in kept]
        return not phase_events and still_live <= {kept[n] for _, _, n in self.grads if n is not None}

    def append_to_tape(self, tag: str) -> None:
        """Append the stretch to the tape, and give the parameters their gradients."""
        tape, base = self.tape, len(self.tape.kinds)
        for phase, events in self.parts:
            tape.events += [e if e >= 0 else e - base for e in events]
            tape.mark_phase(f"{phase}{tag}")
        tape.kinds += self.kinds
        tape.ops += self.ops
        tape.op = self.ops[-1] if self.ops else tape.op
        shared: dict[int | None, TapeMemory | None] = {None: None}  # several gradients can be views of one allocation
        for holder, grad, number in self.grads:
            if number is not None and number not in shared:
                shared[number] = TapeMemory.from_number(tape, base + number)
            holder.grad = Tensor(shared[number], grad.shape, grad.width)
