"""Right and wrong ways to write `mend_the_quantizers`."""

from __future__ import annotations

from functools import partial

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.quantization.mend_the_quantizers import mend_the_quantizers


def without_memory() -> dict[str, tuple[int, str]]:
    """A layer whose weight has no memory; the norm of each row; the largest of all at once."""
    return {
        "layer": (3, "kept = torch.nn.Linear(n, m, bias=False, device='meta')"),
        "channels": (2, "step = torch.linalg.vector_norm(weight, ord=torch.inf, dim=1, keepdim=True) / 127"),
        "calibrated": (5, "step = torch.stack(calibration).abs().max() / 127"),
    }


def other_lines() -> dict[str, tuple[int, str]]:
    """The weight deleted later; steps made anew with the codes; a loop that collects."""
    return {
        "layer": (5, "    kept.codes = (weight / kept.step).round().to(torch.int8); del kept.weight"),
        "channels": (3, "    step = weight.abs().max(1)[0][:, None] / 127; codes = (weight / step).round().char()"),
        "calibrated": (4, "        peak = torch.stack([peak.to(x.dtype), x.max(), -x.min()]).max()"),
    }


def by_numbers() -> dict[str, tuple[int, str]]:
    """Codes and steps in a pair; both ends of each row; Python's numbers."""
    return {
        "layer": (12, "return outputs, (kept.codes, kept.step)"),
        "channels": (2, "step = torch.maximum(weight.amax(-1), -weight.amin(-1)).unsqueeze(-1) / 127"),
        "calibrated": (4, "peak = max(float(peak), float(x.abs().max()))"),
    }


RIGHT = (
    right(without_memory, independent="torch's meta device and vector_norm"),
    right(other_lines),
    right(by_numbers),
)

runs = partial(edited, mend_the_quantizers)
LAYER = '(3, "kept = torch.nn.Module()")'
CHANNELS = '(2, "step = weight.abs().amax(1, keepdim=True) / 127")'
CALIBRATED = '(4, "peak = torch.maximum(peak, x.abs().max())")'

WRONG = (
    wrong(
        "counted_from_0",
        "Your lines are right, and each number is one too small: lines are counted from 1, as they are printed.",
        runs(("(3,", "(2,"), ('(2, "step', '(1, "step'), ("(4,", "(3,")),
    ),
    wrong(
        "still_a_float_weight",
        "`layer` still keeps a weight in floats, in another precision, frozen or under another name. It needs none.",
        runs((LAYER, '(3, "kept = torch.nn.Linear(n, m, bias=False).half()")')),
        runs((LAYER, '(3, "kept = torch.nn.Linear(n, m, bias=False).requires_grad_(False)")')),
        runs((LAYER, '(3, "kept = torch.nn.Module(); kept.original = weight")')),
        runs((LAYER, '(12, "return outputs, (kept, weight)")')),
    ),
    wrong(
        "codes_in_floats",
        "The codes of `layer` or `channels` are not in int8 any more. As floats they take as much as the weight.",
        runs((LAYER, '(10, "product = codes.double() @ kept.codes.double().T; kept.codes = kept.codes.double()")')),
        runs((CHANNELS, '(3, "step = weight.abs().amax(1, keepdim=True) / 127; codes = (weight / step).round()")')),
    ),
    wrong(
        "outputs_of_the_float_weight",
        "`layer` multiplies by the float weight now, or no longer rounds. Its outputs were right.",
        runs((LAYER, '(11, "outputs += [x @ weight.T]")')),
        runs((LAYER, '(10, "product = (x / dx) @ kept.codes.T.double()")')),
    ),
    wrong(
        "nothing_is_returned_to_keep",
        "`layer` returns nothing that is kept, or codes without their steps. The next batches need both.",
        runs((LAYER, '(12, "return outputs, None")')),
        runs((LAYER, '(12, "return outputs, kept.codes")')),
    ),
    wrong(
        "one_step_for_all_channels",
        "`channels` has one step for the whole weight. The rows differ in size by a factor of 1,000.",
        runs((CHANNELS, '(2, "step = weight.abs().max() / 127")')),
    ),
    wrong(
        "not_quantized",
        "`channels` no longer rounds: its outputs are those of the float weight.",
        runs((CHANNELS, '(6, "outputs += [x @ weight.T]")')),
        runs((CHANNELS, '(3, "codes = weight / step")')),
    ),
    wrong(
        "steps_of_columns",
        "The steps of `channels` still belong to columns, the inputs. Dimension 1 runs along a row: take the largest "
        "magnitude over it.",
        runs((CHANNELS, '(2, "step = weight.abs().max(0, keepdim=True).values / 127")')),
        runs((CHANNELS, '(2, "step = weight.abs().amax(-2, keepdim=True) / 127")')),
    ),
    wrong(
        "mean_of_the_batches",
        "The range of `calibrated` is a mean over batches. It must hold the largest of them all.",
        runs((CALIBRATED, '(4, "peak = peak + x.abs().max() / len(calibration)")')),
        runs((CALIBRATED, '(4, "peak = 0.9 * peak + 0.1 * x.abs().max()")')),
    ),
    wrong(
        "first_batch_only",
        "`calibrated` looks at one batch only, the first in place of the last.",
        runs((CALIBRATED, '(3, "for x in calibration[:1]:")')),
    ),
    wrong(
        "adds_up",
        "The range of `calibrated` is the sum of those of all batches: it holds them, and wastes most of the codes.",
        runs((CALIBRATED, '(4, "peak = peak + x.abs().max()")')),
    ),
    wrong(
        "largest_number",
        "`calibrated` compares numbers, and not magnitudes: the most negative one is beyond its range.",
        runs((CALIBRATED, '(4, "peak = torch.maximum(peak, x.max())")')),
    ),
    wrong(
        "steps_as_they_come",
        "`calibrated` takes its step from the batch at hand, or looks at batches that come later. It is to have one, "
        "found beforehand.",
        runs((CALIBRATED, '(8, "step = x.abs().max() / 127; codes = (x / step).round().clamp(-127, 127)")')),
        runs((CALIBRATED, '(5, "step = max(x.abs().max() for x in batches) / 127")')),
    ),
    wrong(
        "without_a_clamp",
        "You took the clamp out of `calibrated`. Numbers beyond the range then wrap round to the other sign; the range "
        "itself is what is wrong.",
        runs((CALIBRATED, '(8, "codes = (x / step).round().to(torch.int8)")')),
    ),
)
