"""`lookback`: whether the model's own answer attends to the filler, layer by layer."""

from __future__ import annotations

from fillerscope.analysis.answer_attention import lookback_table
from fillerscope.analysis.run import Run
from fillerscope.figures.by_layer import BANDS, DASHED, by_layer, curve, shown, words
from fillerscope.figures.captions import clip_note
from fillerscope.figures.figure import Figure
from fillerscope.figures.looks import condition_look
from fillerscope.figures.panels import LayerMeasure, Panel, layer_panels
from fillerscope.figures.request import Request
from fillerscope.figures.style import Drawn, fit_titles, grid, legend, styled
from fillerscope.figures.table import rows_of, stacked
from fillerscope.study.study import Study


def lacks(study: Study) -> str:
    if not any(condition.has_filler for condition in study.conditions):
        return "looks at filler: give the study a condition that has some, such as mless"
    return "" if study.probes.answering else "shows where answers attend: give `probes: {answering: true}` in the study"


def draw(whole: Run, request: Request) -> Drawn:
    run = request.model_run(whole)
    conditions = shown(run, request, "lookback", filler=True)
    tables = [lookback_table(run, name) for name in conditions]
    with styled():
        figure, axes = grid(1, 2, 2.7)
        mass, tokens = axes[0]
        for table in tables:
            look = condition_look(run, table.condition)
            curve(mass, table.values["answer"], look, look.label)
            curve(mass, table.values["question"], look, dash=DASHED)
            curve(tokens, table.values["per_filler"], look)
            curve(tokens, table.values["per_original"], look, dash=DASHED)
        by_layer(mass, tables[0].layers, "Mass on the filler: answer (solid), question (dashed)")
        by_layer(tokens, tables[0].layers, "Received: filler token (solid), original (dashed)")
        mass.set_ylabel("Share of attention")
        tokens.set_ylabel("From the answer, per token")
        for panel in axes.flat:
            panel.set_xlabel("Layer")
            panel.set_ylim(0, None)
        fit_titles(axes.flat)
        legend(figure, [mass], run.label)
    notes = (
        "answer: the rows of the model's own greedy answer; question: those of original tokens of the prompt after the "
        "filler",
        "left: share of their attention on the filler; right: what one token receives from the answer",
        "each problem's mean over the heads of a layer",
        BANDS,
        clip_note(axes.flat),
    )
    text = words(run, conditions, str(tables[0].problems), *notes)
    return Drawn("lookback", figure, stacked([(table.condition, table.columns()) for table in tables]), text)


def _panels(_: Run, drawn: Drawn) -> list[Panel]:
    return layer_panels(MEASURES, rows_of(drawn.table))


MEASURES = (
    LayerMeasure("answer", "Mass on the filler: answer", zero=True),
    LayerMeasure("question", "Mass on the filler: question", zero=True),
    LayerMeasure("per_filler", "From the answer, per filler token", zero=True),
    LayerMeasure("per_original", "From the answer, per original token", zero=True),
)
FIGURE = Figure("lookback", "Where the answer attends", draw, _panels, lacks, MEASURES)
