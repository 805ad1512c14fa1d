"""A batch of any class of transformers on a real device, as its users make it: text, pictures, video, sound, and labels.

``seq`` is the length of a row: tokens of text, samples of a waveform (its transcript is shorter), frames of a spectrogram. What the package under test makes for
itself (``fit/scripts/model_inputs.py``) is not used here.
"""

from __future__ import annotations

import inspect
from typing import Any

ROW_CLASSES = (
    "ForSequenceClassification", "ForImageClassification", "ForAudioClassification", "ForVideoClassification",
)  # fmt: skip
SAMPLES_PER_LABEL = 640  # of a transcript: 25 characters a second


class RealBatch:
    """The inputs of one step of a class, with labels."""

    def __init__(self, job: Any, model: Any, config: Any, device: str) -> None:
        import torch

        self.torch, self.device, self.config, self.name = torch, device, config, type(model).__name__
        self.rows, self.seq = job.micro_batch * (2 if job.dpo else 1), job.seq
        self.padded, self.takes = job.padded, set(inspect.signature(model.forward).parameters)
        self.width = next(p.dtype for p in model.parameters() if p.is_floating_point())
        self.main = model.main_input_name

    def make(self) -> dict[str, Any]:
        batch = self.inputs()
        if "return_loss" in self.takes:
            return batch | {"return_loss": True}
        return batch | ({"labels": self.labels(batch)} if "labels" in self.takes else {})

    def inputs(self) -> dict[str, Any]:
        if self.main == "pixel_values" or "return_loss" in self.takes:
            batch = {"pixel_values": self.pictures()}
            return batch | ({"input_ids": self.tokens()} if "input_ids" in self.takes else {})
        if self.main == "pixel_values_videos":
            size = self.config.crop_size
            return {self.main: self.floats(self.rows, self.config.frames_per_clip, 3, size, size)}
        if self.main in ("input_values", "input_features"):
            return self.sounds()
        batch = {"input_ids": self.tokens()}
        if self.padded:
            mask = self.torch.ones(self.rows, self.seq, dtype=self.torch.long, device=self.device)
            mask[0, self.seq - self.seq // 8 :] = 0
            batch["attention_mask"] = mask
        if "bbox" in self.takes:
            batch["bbox"] = self.torch.zeros(self.rows, self.seq, 4, dtype=self.torch.long, device=self.device)
        return batch

    def tokens(self, seq: int = 0) -> Any:
        """Random ids; the last two and the lowest ones are special in many vocabularies."""
        size = int(getattr(self.config.get_text_config(), "vocab_size", 0) or getattr(self.config, "vocab_size", 1000))
        return self.torch.randint(min(8, size // 2), size - 2, (self.rows, seq or self.seq), device=self.device)

    def pictures(self) -> Any:
        inner = (
            getattr(self.config, "vision_config", None) or getattr(self.config, "backbone_config", None) or self.config
        )
        size = getattr(inner, "image_size", None) or 224
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        frames = (self.config.num_frames,) if "Video" in self.name or "Timesformer" in self.name else ()
        return self.floats(self.rows, *frames, 3, height, width)

    def sounds(self) -> dict[str, Any]:
        """Sound of full length; a transcript of a spectrogram (CTC) takes its length from the mask."""
        batch = {self.main: self.sound()}
        if self.main == "input_features" and self.name.endswith("ForCTC") and "attention_mask" in self.takes:
            batch["attention_mask"] = self.torch.ones(
                batch[self.main].shape[:2], dtype=self.torch.long, device=self.device
            )
        return batch

    def sound(self) -> Any:
        """A spectrogram by time and bin, or a waveform."""
        inner = getattr(self.config, "encoder_config", None) or self.config
        bins = getattr(inner, "num_mel_bins", None) or getattr(inner, "input_feat_per_channel", None)
        if (
            self.main == "input_features"
            and getattr(inner, "num_mel_bins", None)
            and hasattr(inner, "max_source_positions")
        ):
            return self.floats(self.rows, bins, 2 * inner.max_source_positions)  # Whisper: bins by time, always 30 s
        if self.main == "input_values" and bins:
            return self.floats(self.rows, self.config.max_length, bins)
        return self.floats(self.rows, self.seq, bins) if bins else self.floats(self.rows, self.seq)

    def floats(self, *shape: int) -> Any:
        return self.torch.randn(*shape, device=self.device, dtype=self.width)

    def labels(self, batch: dict[str, Any]) -> Any:
        if self.name.endswith(ROW_CLASSES):
            return self.torch.zeros(self.rows, dtype=self.torch.long, device=self.device)
        if self.name.endswith("ForSemanticSegmentation"):
            shape = self.rows, *batch["pixel_values"].shape[-2:]
            return self.torch.zeros(shape, dtype=self.torch.long, device=self.device)
        if self.name.endswith("ForTokenClassification"):
            return self.torch.zeros(self.rows, self.seq, dtype=self.torch.long, device=self.device)
        if self.name.endswith("ForCTC") or batch.get("input_values", self.torch.empty(0)).dim() == 2:
            return self.tokens(max(1, self.seq // SAMPLES_PER_LABEL))
        return batch["input_ids"] if "input_ids" in batch else self.tokens()
