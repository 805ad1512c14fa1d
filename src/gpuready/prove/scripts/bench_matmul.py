"""Matrix products in one precision, and their fastest shape. Standalone; torch is passed in."""

import time

import bench_search
from bench_clock import BenchClock

FILL_CELL = 1 << 24
LARGEST_SIDE = 16384
CAPABILITY_FLOORS = {"tf32": (8, 0), "bf16": (8, 0), "fp8": (8, 9), "int8": (7, 5), "fp16": (5, 3)}
"""The compute capability from which on a GPU has a precision natively; older ones emulate or refuse it."""


class NotSupportedHere(Exception):
    """This hardware or torch does not have the precision; the text says why."""


class MatmulBench:
    """Products of one precision on one device, from a pool of random numbers larger than any cache.

    Each turn takes operands from another part of the pool, so that none is still in the cache.
    """

    def __init__(self, torch, device, precision):
        self.torch, self.device, self.precision = torch, device, precision
        self.clock = BenchClock(torch, device)
        self.units = self._check_capability()
        self.dtype = _torch_dtype(torch, precision)
        self.pool = self._fill_pool()
        self.one = torch.ones((), device=device) if precision == "fp8" else None
        self.offset = 0
        self.note, self.trouble = "", None

    def _check_capability(self):
        """Return the number of multiprocessors; NotSupportedHere if the GPU lacks the precision."""
        if self.device.type != "cuda":
            return 0
        about = self.torch.cuda.get_device_properties(self.device)
        floor = CAPABILITY_FLOORS.get(self.precision, (0, 0))
        if (about.major, about.minor) < floor:
            has = f"{about.major}.{about.minor}"
            raise NotSupportedHere(
                f"{self.precision} needs compute capability {floor[0]}.{floor[1]}, and this GPU has {has}"
            )
        return about.multi_processor_count

    def _fill_pool(self):
        torch, count = self.torch, self._pool_size()
        cell = min(FILL_CELL, count)
        if self.precision == "int8":
            base = torch.randint(-128, 127, (cell,), device=self.device, dtype=torch.int8)
        else:
            base = torch.randn(cell, device=self.device).to(self.dtype)
        pool = torch.empty(count // cell * cell, device=self.device, dtype=self.dtype)
        # As bytes: not every torch can broadcast 8-bit dtypes.
        pool.view(torch.uint8).view(count // cell, -1).copy_(base.view(torch.uint8).expand(count // cell, -1))
        return pool

    def _pool_size(self):
        """Return the pool's element count: three of the largest operand, at most a quarter of the free memory."""
        if self.device.type != "cuda":
            return 3 << 22
        self.torch.cuda.empty_cache()  # so that memory of an earlier pool counts as free
        free = self.torch.cuda.mem_get_info(self.device)[0]
        size = self.torch.empty((), dtype=self.dtype).element_size()
        count = min(3 * LARGEST_SIDE * LARGEST_SIDE, free // 4 // size)
        if count < 3 << 20:
            raise NotSupportedHere(f"too little memory of the GPU is free: {free >> 20} MiB")
        return count if count < FILL_CELL else count // FILL_CELL * FILL_CELL

    def longest_side(self):
        """Return the longest side to try: a quarter more than a square that fits three times into the pool."""
        side = 256
        while side < LARGEST_SIDE and 3 * (2 * side) ** 2 <= self.pool.numel():
            side *= 2
        return side * 5 // 4

    def _next_operand(self, rows, columns):
        count = rows * columns
        if self.offset + count > self.pool.numel():
            self.offset = 0
        part = self.pool[self.offset : self.offset + count]
        self.offset += (count + 255) // 256 * 256
        return part.view(rows, columns)

    def _make_work(self, shape):
        """Return the product as a call; each turn takes the next operands of the pool."""
        rows, columns, depth = shape
        product = self._make_product(shape)
        pairs = [
            (self._next_operand(rows, depth), self._next_operand(columns, depth))
            for _ in range(self._operand_copies(shape))
        ]
        return lambda turn: product(*pairs[turn % len(pairs)])

    def _operand_copies(self, shape):
        rows, columns, depth = shape
        return max(1, min(8, self.pool.numel() // (depth * (rows + columns))))

    def _make_product(self, shape):
        torch = self.torch
        if self.precision == "fp8":
            return self._scaled_product
        if self.precision == "int8":
            return lambda a, b: torch._int_mm(a, b.t())
        out = torch.empty(shape[0], shape[1], device=self.device, dtype=self.dtype)
        return lambda a, b: torch.mm(a, b.t(), out=out)

    def _scaled_product(self, a, b):
        """Multiply in fp8; the signature of torch._scaled_mm has changed more than once."""
        torch, words = (self.torch, {"scale_a": self.one, "scale_b": self.one, "out_dtype": self.torch.bfloat16})
        if self.note != "exact accumulation":
            try:
                return torch._scaled_mm(a, b.t(), use_fast_accum=True, **words)
            except TypeError:
                self.note = "exact accumulation"
        return torch._scaled_mm(a, b.t(), **words)

    def measure_rate(self, shape, seconds=0.01, warm=0.0):
        """Return operations per second at one shape, by the median and the best turn; None if memory is short."""
        rows, columns, depth = shape
        if depth * (rows + columns) > self.pool.numel():
            return None
        with _Tf32Setting(self.torch, self.precision == "tf32"):
            try:
                middle, best = self.clock.measure_burst(self._make_work(shape), seconds, warm)
            except self.torch.cuda.OutOfMemoryError:
                return None
        work = 2.0 * rows * columns * depth
        return work / middle, work / best

    def sustained_rate(self, shape, seconds):
        """Return operations per second in one run without rests (under the power limit), and of the best turn."""
        with _Tf32Setting(self.torch, self.precision == "tf32"):
            mean, best = self.clock.measure_sustained(self._make_work(shape), seconds)
        work = 2.0 * shape[0] * shape[1] * shape[2]
        return work / mean, work / best

    def find_best_shape(self, seconds, quick=False):
        """Search for ``seconds`` for the fastest shape; return it and the number of shapes tried."""
        limit, begun = self.longest_side(), time.perf_counter()
        each = max(seconds / 250, 0.004)
        shapes = bench_search.starting_shapes(self.units, limit, quick)
        if not self.units:
            shapes = [(side, side, side) for side in (1024, 1536, 512, 2048) if side <= limit]
        # Warm up, so that the clocks have risen.
        known = (self._try_rate(shapes[0], each, seconds / 20) or (0.0,))[0]

        def rate_if_quick(shape):
            # Skip shapes that would take a twentieth of all the time: large ones are alike.
            if known and 12.0 * shape[0] * shape[1] * shape[2] / known > seconds / 20 and shape != shapes[0]:
                return None
            return (self._try_rate(shape, each) or (None,))[0]

        best, _, seen = bench_search.search_best_shape(
            rate_if_quick,
            shapes,
            limit,
            lambda: time.perf_counter() - begun > seconds * 0.75,
            lambda: time.perf_counter() - begun > seconds,
        )
        if best is None:
            raise self.trouble or NotSupportedHere("no shape fits into the memory that is free")
        return best, len(seen)

    def _try_rate(self, shape, seconds, warm=0.0):
        """Return the rate of a shape; None if the library has no kernel for it (the error is kept)."""
        try:
            return self.measure_rate(shape, seconds, warm)
        except RuntimeError as error:
            if "CUDA error" in str(error) and "CUBLAS" not in str(error):
                raise  # a fault of the GPU, not of the shape
            self.trouble = error
            return None


class _Tf32Setting:
    """Set the matmul precision of float32 temporarily."""

    def __init__(self, torch, on):
        self.flags, self.on = torch.backends.cuda.matmul, on

    def __enter__(self):
        self.before = self.flags.allow_tf32
        self.flags.allow_tf32 = self.on

    def __exit__(self, *_):
        self.flags.allow_tf32 = self.before


def _torch_dtype(torch, precision):
    names = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
    name = names.get(precision, {"fp8": "float8_e4m3fn", "int8": "int8"}.get(precision, precision))
    if not hasattr(torch, name):
        raise NotSupportedHere(f"torch {torch.__version__} has no {name}")
    if precision == "fp8" and not hasattr(torch, "_scaled_mm"):
        raise NotSupportedHere(f"torch {torch.__version__} has no _scaled_mm")
    if precision == "int8" and not hasattr(torch, "_int_mm"):
        raise NotSupportedHere(f"torch {torch.__version__} has no _int_mm")
    return getattr(torch, name)
