"""The race: gradients are those of the heights, paths are torch's, and what is drawn lies where the numbers say."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree

import pytest
import torch

from course.errors import BadArgument
from course.lessons.experiments.race import OPTIMIZERS, RATES, Path, best_rates, race, run
from course.lessons.experiments.surfaces import SURFACES, grid, named
from course.lessons.figures.race import STYLES, called, race_picture, stage
from course.lessons.figures.race_overlay import Panel, backdrop, overlay, panel
from course.lessons.widgets.race import Board, sentence, settled
from course.lessons.widgets.race import race as race_widget

SVG = "{http://www.w3.org/2000/svg}"


def path(values: list[float], *, left: int | None = None) -> Path:
    """A path along the x axis with these heights."""
    points = torch.stack([torch.arange(len(values)), torch.zeros(len(values))], 1).double()
    return Path(points=points, values=torch.tensor(values, dtype=torch.float64), left=left, lr=0.1)


# Surfaces


@pytest.mark.parametrize("name", SURFACES)
def test_the_gradient_is_the_slope_of_the_height(name: str) -> None:
    surface, h = named(name), 1e-5
    left, right, bottom, top = surface.view
    unit = torch.rand(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    points = torch.tensor([left, bottom]) + unit * torch.tensor([right - left, top - bottom])
    for axis, offset in enumerate(torch.eye(2, dtype=torch.float64) * h):
        slope = (surface.height(points + offset) - surface.height(points - offset)) / (2 * h)
        torch.testing.assert_close(surface.gradient(points)[:, axis], slope, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "minimum"),
    [
        ("ravine", (0, 0)),
        ("turned ravine", (0, 0)),
        ("saddle", (0, 1)),
        ("saddle", (0, -1)),
        ("two minima", (-1.5, 0)),
        ("two minima", (1, 0)),
        ("rosenbrock", (1, 1)),
    ],
)
def test_minima_lie_at_height_zero_where_the_gradient_is_zero(name: str, minimum: tuple[float, float]) -> None:
    point = torch.tensor(minimum, dtype=torch.float64)
    assert float(named(name).height(point)) == pytest.approx(0, abs=1e-9)
    assert named(name).gradient(point).tolist() == pytest.approx([0, 0], abs=1e-9)


def test_turning_the_ravine_changes_no_height_and_no_steepness() -> None:
    start, turned = (torch.tensor(named(name).start) for name in ("ravine", "turned ravine"))
    assert float(named("turned ravine").height(turned)) == pytest.approx(float(named("ravine").height(start)))
    steep = [named(name).gradient(p).norm() for name, p in (("ravine", start), ("turned ravine", turned))]
    assert float(steep[0]) == pytest.approx(float(steep[1]))


def test_a_grid_has_a_row_for_each_y_and_a_column_for_each_x() -> None:
    land = grid("rosenbrock", across=5)
    assert land.heights.shape == (5, 5)
    assert float(land.heights[0, 4]) == (1 - 2) ** 2 + 100 * (-1 - 4) ** 2  # x = 2, y = -1


@pytest.mark.parametrize("name", SURFACES)
def test_every_start_lies_in_its_picture(name: str) -> None:
    left, right, bottom, top = named(name).view
    x, y = named(name).start
    assert left < x < right
    assert bottom < y < top


# Paths


def test_gradient_descent_on_the_ravine_shrinks_each_coordinate_by_its_own_factor() -> None:
    points = run("ravine", "SGD", 10, lr=0.015).points
    steps = torch.arange(11)
    torch.testing.assert_close(points[:, 0], -4.0 * (1 - 0.015) ** steps.double())
    torch.testing.assert_close(points[:, 1], 0.8 * (1 - 1.5) ** steps.double())


def test_momentum_and_nesterov_without_momentum_are_sgd() -> None:
    plain = run("saddle", "SGD", 20, lr=0.1).points
    for name in ("momentum", "Nesterov"):
        assert run("saddle", name, 20, lr=0.1, momentum=0.0).points.equal(plain)


def test_the_first_step_of_adam_is_the_rate_and_that_of_rmsprop_is_longer() -> None:
    start = torch.tensor(named("ravine").start, dtype=torch.float64)
    adam = (run("ravine", "Adam", 1, lr=0.01).points[1] - start).abs()
    rmsprop = (run("ravine", "RMSprop", 1, lr=0.01, betas=(0.9, 0.99)).points[1] - start).abs()
    assert adam.tolist() == pytest.approx([0.01, 0.01], rel=1e-6)
    assert rmsprop.tolist() == pytest.approx([0.1, 0.1], rel=1e-6)  # 1 / sqrt(1 - 0.99) times the rate


def test_a_path_has_its_start_a_point_for_each_step_and_the_heights_there() -> None:
    path = run("two minima", "Adam", 7, lr=0.1)
    assert path.points.shape == (8, 2)
    assert tuple(path.points[0].tolist()) == named("two minima").start
    assert path.values.equal(named("two minima").height(path.points))
    assert path.left is None


def test_a_path_that_leaves_ends_there_and_says_so() -> None:
    path = run("ravine", "SGD", 50, lr=0.04)  # y changes by the factor -3
    assert path.points[:, 1].tolist() == pytest.approx([0.8, -2.4, 7.2])
    assert path.left == 2 == len(path.values) - 1


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("surface", SURFACES)
def test_the_largest_rate_of_the_slider_gives_finite_paths(surface: str, name: str) -> None:
    path = run(surface, name, 50, lr=10**0.5, momentum=0.99)
    assert path.points.isfinite().all()
    assert (path.left is None) == (len(path.values) == 51)


def test_the_best_rate_leaves_the_optimizer_lowest() -> None:
    assert best_rates("ravine", 50, optimizers=["SGD"]) == {"SGD": 0.01}  # 0.02 only swings across, 0.005 is slower
    (best,) = best_rates("rosenbrock", 30, optimizers=["Adam"]).values()
    ends = {lr: float(run("rosenbrock", "Adam", 30, lr=lr).values[-1]) for lr in RATES}
    assert best == min(ends, key=ends.__getitem__)


def test_a_race_may_give_each_optimizer_its_own_rate() -> None:
    paths = race("saddle", 5, lr={"SGD": 0.1, "Adam": 0.2}, optimizers=["SGD", "Adam"])
    assert {name: each.lr for name, each in paths.items()} == {"SGD": 0.1, "Adam": 0.2}
    assert paths["Adam"].points.equal(run("saddle", "Adam", 5, lr=0.2).points)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"surface": "hill"}, "a surface must be one of ravine, .* got 'hill'"),
        ({"optimizer": "Lion"}, "an optimizer must be one of SGD, .* got 'Lion'"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"lr": 0.0}, "lr must be positive and finite, got 0.0"),
        ({"lr": math.inf}, "lr must be positive and finite, got inf"),
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\), got 1.0"),
        ({"betas": (0.9, -0.1)}, r"beta2 must lie in \[0, 1\), got -0.1"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(BadArgument, match=words):
        run(**{"surface": "ravine", "optimizer": "Adam", "lr": 0.1} | change)


# Figures


def test_the_figure_shows_the_paths_up_to_the_step_with_title_axes_and_legend() -> None:
    tracks = {"SGD": path([3.0, 2.0, 1.0]), "Adam": path([3.0, 900.0], left=1)}
    figure = race_picture(grid("saddle"), tracks, title="who wins", step=1)
    plane, course = figure.axes
    assert figure.get_suptitle() == "who wins"
    assert [axes.get_xlabel() for axes in figure.axes] == ["x", "step"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["y", "f(x, y)"]
    assert [line.get_xydata().tolist() for line in course.lines] == [[[0, 3], [1, 2]], [[0, 3], [1, 900]]]
    assert [len(line.get_xydata()) for line in plane.lines] == [2, 2]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["SGD is at 2", "Adam left at step 1"]


def test_paths_do_not_move_the_edges_of_the_picture() -> None:
    plane, _ = race_picture(grid("saddle"), {"far": path([1.0] * 40)}, title="t").axes
    assert (*plane.get_xlim(), *plane.get_ylim()) == named("saddle").view


def test_six_paths_differ_in_dashes_and_in_markers() -> None:
    assert len({style.dashes for style in STYLES}) == len({style.marker for style in STYLES}) == len(OPTIMIZERS)


def test_a_legend_says_where_a_path_is_where_it_ends_or_when_it_left() -> None:
    assert called("a", path([1.0, 0.123, 1e-9]), 1) == "a is at 0.12"
    assert called("a", path([1.0, 0.123, 1e-9]), 2) == "a ends below 1e-06"
    assert called("a", path([1.0, 70.0], left=1), 5) == "a left at step 1"


# Overlay


def test_panels_lie_where_matplotlib_draws() -> None:
    drawn = stage(grid("two minima"), title="t", steps=150)
    ground = backdrop(drawn)
    assert ground.image.startswith("data:image/png;base64,iVBOR")
    for axes, box in ((drawn.plane, ground.plane), (drawn.course, ground.course)):
        xs, ys = torch.tensor([0.5, 2.0]), torch.tensor([0.25, 1.5])
        expected = [axes.transData.transform(point) for point in zip(xs.tolist(), ys.tolist(), strict=True)]
        found = [(box.left + x, ground.height - box.top - y) for x, y in box.places(xs, ys)]
        assert found == [pytest.approx(tuple(each), abs=0.01) for each in expected]
        assert panel(drawn.figure, axes) == box


def test_a_panel_scales_linear_and_logarithmic_axes() -> None:
    box = Panel(left=10, top=20, width=100, height=200, x0=0, x1=10, y0=0.01, y1=100, log=True)
    assert box.places(torch.tensor([0.0, 5.0]), torch.tensor([1.0, 0.0])) == [(0, 100), (50, 200)]
    flat = Panel(left=10, top=20, width=100, height=200, x0=-1, x1=1, y0=0, y1=4, log=False)
    assert flat.places(torch.tensor([0.0, 1e9]), torch.tensor([1.0, 4.0])) == [(50, 150), (4000, 0)]


def drawn_overlay() -> tuple[str, ElementTree.Element]:
    """Two paths over the saddle's contours: one of three steps, one that left at the first."""
    tracks = {"SGD": path([3.0, 2.0, 1.0, 0.5]), "Adam": path([3.0, 9.0], left=1)}
    text = overlay(backdrop(stage(grid("saddle"), title="t", steps=3)), tracks, steps=3, scope="here")
    return text, ElementTree.fromstring(text)


def test_an_overlay_has_a_group_for_each_step_with_a_piece_of_each_path() -> None:
    _, root = drawn_overlay()
    groups = [each for each in root.iter(f"{SVG}g") if "--n" in each.get("style", "")]
    assert [each.get("style") for each in groups] == ["--n: 1", "--n: 2", "--n: 3"]
    assert [[piece.get("d") is not None for piece in group] for group in groups] == [[True] * 2] + [[True, False]] * 2


def test_dashes_go_on_from_one_piece_of_a_path_to_the_next() -> None:
    _, root = drawn_overlay()
    pieces = [group[0] for group in root.iter(f"{SVG}g") if "--n" in group.get("style", "")]
    across = grid("saddle").xs
    length = 360 / float(across[-1] - across[0])  # of a step of 1 along x; the axes are about 360 pixels wide
    offsets = [float(piece.get("stroke-dashoffset", "")) for piece in pieces]
    assert offsets == pytest.approx([0, length, 2 * length], rel=0.05)


def test_each_step_has_a_rule_and_a_path_that_ended_keeps_its_head_at_its_end() -> None:
    text, _ = drawn_overlay()
    rules = re.findall(r'aria-valuenow="(\d+)\.0"\]\) \.race { --step: (\d+); (.*?) }', text)
    assert [(said, step) for said, step, _ in rules] == [(str(k), str(k)) for k in range(4)]
    heads = [dict(re.findall(r"--(\w+): ([^;]+);", heads)) for _, _, heads in rules]
    assert len({each["plane0"] for each in heads}) == 4
    assert heads[1]["plane1"] == heads[2]["plane1"] == heads[3]["plane1"] != heads[0]["plane1"]


def test_the_legend_of_an_overlay_is_read_aloud() -> None:
    _, root = drawn_overlay()
    assert root.get("aria-label") == "SGD ends at 0.5; Adam left at step 1"
    assert [each.text for each in root.iter(f"{SVG}text")] == ["SGD ends at 0.5", "Adam left at step 1"]


# Widget


def test_the_first_frame_has_the_whole_race_over_its_contours() -> None:
    board = Board("ravine")
    assert board.step.value == board.play.value == board.step.max
    assert "data:image/png;base64," in board.picture.value
    assert "SGD ends at 0.39" in board.lines.value
    assert "Nesterov, at step" in board.words.value


def test_a_larger_rate_is_run_at_once_and_tells_who_left() -> None:
    board = Board("ravine")
    board.lr.value = 0.025
    assert board.settings.lr == 0.025
    assert "SGD left at step 4" in board.lines.value
    assert "out of the picture: SGD at step 4" in board.words.value


def test_another_surface_brings_its_contours_and_its_rate() -> None:
    board = Board("ravine")
    before = board.picture.value
    board.surface.value = "two minima"
    assert board.picture.value != before
    assert board.lr.value == named("two minima").rate
    assert "the lower of" in board.words.value


def test_at_their_own_rates_the_common_rate_rests() -> None:
    board = Board("ravine")
    board.own.value = True
    assert board.lr.disabled
    rates = best_rates("ravine")
    assert f"SGD {rates['SGD']:g}, momentum {rates['momentum']:g}" in board.words.value
    assert board.settings.run()["Adam"].lr == rates["Adam"]


def test_a_step_asks_nothing_of_the_kernel() -> None:
    board = Board("saddle")
    before = board.lines.value
    board.step.value = 17
    assert board.lines.value == before


def test_two_boards_do_not_listen_to_each_others_sliders() -> None:
    first, second = Board("ravine"), Board("ravine")
    assert first.scope != second.scope
    assert first.scope in first.box._dom_classes
    assert f".{first.scope}:has(.race-step" in first.lines.value


def test_who_comes_down_first_stays_down() -> None:
    paths = {"dips": path([1.0, 1e-9, 1.0, 1e-9]), "stays": path([1.0, 1.0, 1e-9, 1e-10])}
    assert [settled(each) for each in paths.values()] == [3, 2]
    assert settled(path([1.0, 1.0])) == math.inf
    assert "for good: stays, at step 2" in sentence(Board("ravine").settings, paths)
    assert "Lowest of all, slow ends at 0.5" in sentence(Board("ravine").settings, {"slow": path([1.0, 0.5])})


def test_an_unknown_surface_is_refused() -> None:
    with pytest.raises(BadArgument, match="got 'hill'"):
        race_widget("hill")
