"""Linear layers over a 4-bit base as bitsandbytes and peft run them, on the meta device. Runs in the target environment."""

import types

import torch
from emulation import first_backward_only

BLOCK = 64  # values with one scale


class FourBitProduct(torch.autograd.Function):
    """bitsandbytes' 4-bit product: keeps only the codes, and dequantises again in the backward."""

    @staticmethod
    def forward(ctx, x, layer):
        scales = [layer.read_scales() for _ in range(2)]  # the scales, and the scales with their mean added
        weight = torch.empty((layer.out_features, layer.in_features), dtype=x.dtype, device=x.device)
        out = torch.nn.functional.linear(x, weight)
        del weight, scales
        ctx.layer, ctx.shape = layer, x.shape
        return out

    @staticmethod
    @first_backward_only
    def backward(ctx, grad):
        layer = ctx.layer
        scales = layer.read_scales()
        weight = torch.empty((layer.out_features, layer.in_features), dtype=grad.dtype, device=grad.device)
        del scales
        return torch.matmul(grad, weight), None


class FourBitLinear(torch.nn.Linear):
    """A linear layer of which only codes and scales are kept."""

    def __init__(self, old, dtype, double):
        torch.nn.Module.__init__(self)
        self.in_features, self.out_features = old.weight.T.shape if type(old) is torch.nn.Linear else old.weight.shape
        self.compute_dtype, self.double, self.bias = dtype, double, old.bias
        count = old.weight.numel()
        self.blocks = -(-count // BLOCK)
        self.weight = torch.nn.Parameter(
            torch.empty(-(-count // 2), 1, dtype=torch.uint8, device="meta"), requires_grad=False
        )
        sizes = {"table": 64, "scales": 4 * self.blocks}
        if double:
            sizes |= {"scales": self.blocks, "mean": 4, "scales_of_scales": 4 * -(-self.blocks // 256), "codes": 1024}
        for name, size in sizes.items():
            self.register_buffer(name, torch.empty(size, dtype=torch.uint8, device="meta"))

    def read_scales(self):
        return torch.empty(self.blocks, dtype=torch.float32, device="meta") if self.double else None

    def forward(self, x):
        out = FourBitProduct.apply(x.to(self.compute_dtype), self)
        if self.bias is not None:
            out += self.bias.to(self.compute_dtype)
        return out.to(x.dtype)


def quantise_layers(model, dtype, double):
    """Replace the linear layers that transformers quantises for bitsandbytes."""
    from transformers.pytorch_utils import Conv1D

    skips = choose_skipped_layers(model)
    for path, child in list(model.named_modules()):
        if type(child) in (torch.nn.Linear, Conv1D) and not skips(path):
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, FourBitLinear(child, dtype, double))


def choose_skipped_layers(model):
    """Return the test of a name that is not quantised: the head, what is tied, the last parameter, and what is kept in fp32."""
    try:
        from transformers.quantizers.base import HfQuantizer
        from transformers.quantizers.quantizers_utils import should_convert_module
    except ImportError:  # before transformers 5: the head alone
        head = model.get_output_embeddings()
        return lambda path: model.get_submodule(path) is head
    kept = HfQuantizer.get_modules_to_not_convert(model, None, getattr(model, "_keep_in_fp32_modules", None))
    return lambda path: not should_convert_module(path, kept)


def prepare_kbit_training(model):
    """peft's prepare_model_for_kbit_training: what is not quantised is trained around in fp32."""
    for parameter in model.parameters():
        parameter.requires_grad = False
        if parameter.dtype in (torch.float16, torch.bfloat16):
            parameter.data = parameter.data.to(torch.float32)
    model.enable_input_require_grads()


def adapt_quantised_layers(model, autocast):
    """Let peft's layers over 4-bit layers run as its Linear4bit does."""
    for module in model.modules():
        if isinstance(getattr(module, "base_layer", None), FourBitLinear):
            module.forward = types.MethodType(make_lora_forward(autocast), module)


def make_lora_forward(autocast):
    def forward(self, x, *args, **kwargs):
        result = self.base_layer(x).clone()
        width = result.dtype
        for name in self.active_adapters:
            a, b = self.lora_A[name], self.lora_B[name]
            inside = x if autocast.active else x.to(a.weight.dtype)
            output = b(a(self.lora_dropout[name](inside))) * self.scaling[name]
            result = result + (output if autocast.active else output.to(width))
        return result

    return forward
