"""A Triton kernel: a row-wise softmax, compiled for this GPU now, against float64."""

import proof

triton = tl = None  # read by the kernel below; set once they are imported as steps of the proof


def kernel():
    @triton.jit
    def softmax(out, x, columns, WIDTH: tl.constexpr):
        row = tl.program_id(0)
        at = tl.arange(0, WIDTH)
        inside = at < columns
        values = tl.load(x + row * columns + at, mask=inside, other=float("-inf"))
        values = tl.exp(values - tl.max(values, 0))
        tl.store(out + row * columns + at, values / tl.sum(values, 0), mask=inside)

    return softmax


def act(p):
    global triton, tl
    torch = p.torch()
    triton = p.module("triton")
    tl = p.module("triton.language")
    p.record["versions"]["triton"] = str(triton.__version__)
    if not p.cuda:
        raise proof.Absent("Triton needs a GPU")
    rows, columns = 512, 1000
    x = torch.randn(rows, columns, device=p.device)
    out = torch.empty_like(x)
    p.step("compile the kernel and run it")
    kernel()[(rows,)](out, x, columns, WIDTH=1024)
    p.wait()
    p.step("compare with float64")
    p.close("softmax", out, x.double().softmax(1), 1e-5)
    p.number("row_sum", float((out.double().sum(1) - 1).abs().max()), "most", 1e-5)


if __name__ == "__main__":
    proof.main(act)
