"""The texts of the built-in problems: names, settings, and the wordings of every kind of calculation.

To add a wording, add a text to WORDINGS or PLAIN; to add a setting, a line to SCENES or ACTIVITIES. Every number in
a question is at least 2, so nouns after a number are always plural.
"""

from __future__ import annotations

from typing import NamedTuple

WOMEN = "Amara Beatriz Chloe Dalia Elif Freya Grace Hana Ines Keiko Leila Maya Nadia Olga Priya Rosa Sofia"
MEN = "Adam Bilal Carlos Dmitri Emeka Felix Goran Hugo Jamal Kenji Liam Mateo Nikhil Omar Pavel Samir Tomas"
PRONOUNS = dict.fromkeys(WOMEN.split(), ("she", "her")) | dict.fromkeys(MEN.split(), ("he", "his"))


class Scene(NamedTuple):
    place: str
    inside: str  # the preposition of the container
    box: str
    boxes: str
    items: tuple[str, ...]


SCENES = (
    Scene("at the bakery", "on", "tray", "trays", ("bread rolls", "muffins", "bagels", "cookies", "pies")),
    Scene("in the orchard", "in", "basket", "baskets", ("apples", "pears", "plums", "peaches", "apricots")),
    Scene("at the town library", "on", "shelf", "shelves", ("novels", "atlases", "comics", "magazines")),
    Scene("at the school", "in", "box", "boxes", ("pencils", "crayons", "erasers", "notebooks", "rulers")),
    Scene("in the greenhouse", "in", "crate", "crates", ("seedlings", "cacti", "tulip bulbs", "ferns")),
    Scene("at the toy shop", "in", "bag", "bags", ("marbles", "toy cars", "wooden blocks", "puppets", "dice")),
    Scene("at the post office", "in", "sack", "sacks", ("stamp albums", "postcards", "calendars", "maps")),
    Scene("on the farm", "in", "carton", "cartons", ("eggs", "potatoes", "turnips", "ears of corn")),
    Scene("on the beach", "in", "bucket", "buckets", ("seashells", "sand molds", "sun hats", "beach balls")),
    Scene("in the workshop", "in", "drawer", "drawers", ("screws", "paintbrushes", "hinges", "batteries")),
    Scene("at the museum", "in", "glass case", "glass cases", ("coins", "medals", "model ships", "masks")),
    Scene("at the market", "in", "crate", "crates", ("melons", "lemons", "onions", "oranges", "mangoes")),
    Scene("at the sports club", "in", "locker", "lockers", ("tennis balls", "helmets", "jump ropes")),
    Scene("at the craft fair", "in", "jar", "jars", ("beads", "buttons", "ribbons", "glass charms")),
    Scene("in the office", "in", "cupboard", "cupboards", ("binders", "staplers", "notepads", "desk lamps")),
    Scene("at the animal shelter", "in", "bin", "bins", ("chew toys", "blankets", "food bowls", "leashes")),
    Scene("in the science lab", "on", "rack", "racks", ("test tubes", "beakers", "magnets", "glass slides")),
    Scene("at the hotel", "on", "cart", "carts", ("towels", "pillows", "bars of soap", "bathrobes")),
    Scene("in the town hall", "on", "table", "tables", ("cupcakes", "party hats", "candles", "lanterns")),
    Scene("at the music school", "in", "cabinet", "cabinets", ("songbooks", "drumsticks", "flutes")),
    Scene("in the theater", "in", "trunk", "trunks", ("costumes", "wigs", "posters", "paper fans")),
)


class Activity(NamedTuple):
    does: str
    did: str
    units: str
    of: str


ACTIVITIES = (
    Activity("cycles", "cycled", "miles", "along the river"),
    Activity("walks", "walked", "miles", "through the hills"),
    Activity("rows", "rowed", "miles", "across the bay"),
    Activity("swims", "swam", "laps", "in the pool"),
    Activity("runs", "ran", "laps", "around the park"),
    Activity("reads", "read", "pages", "of a long novel"),
    Activity("translates", "translated", "pages", "of a manual"),
    Activity("types", "typed", "lines", "of a report"),
    Activity("paints", "painted", "feet", "of the garden fence"),
    Activity("digs", "dug", "feet", "of a drainage ditch"),
    Activity("weaves", "wove", "rows", "of a carpet"),
    Activity("memorizes", "memorized", "lines", "of an epic poem"),
)

Operations = tuple[str, ...]  # one name a step

# The numbers a, b and c are taken in this order: ((a first b) second c).
WORDINGS: dict[Operations, tuple[str, ...]] = {
    ("add",): (
        "{name} counts {a} {items} {place} in the morning, and in the afternoon {other} brings {b} more. "
        "How many {items} are there in all?",
        "{Place} there are {a} {items} {inside} one {box} and {b} {inside} another. {name} gathers them all "
        "into a single pile. How many {items} are in the pile?",
        "{name} and {other} are helping {place}. {name} carries {a} {items} and {other} carries {b}. How "
        "many {items} do the two of them carry altogether?",
        "Last week {name} collected {a} {items} {place}. This week {she} collected another {b}. How many "
        "{items} did {she} collect over the two weeks?",
        "{other} has sorted {a} {items} {place} so far today. {name} has sorted {b} more {items} than "
        "{other}. How many {items} has {name} sorted?",
        "After giving away {a} {items} {place}, {name} still has {b} of them left. How many {items} did "
        "{she} have at the start?",
        "Last year {name} {did} {a} {units} {of}, and this year {she} {did} another {b}. How many {units} "
        "is that over the two years?",
    ),
    ("subtract",): (
        "{name} has {a} {items} {place}. {She} hands {b} of them to {other} and keeps all the rest. How "
        "many {items} does {name} keep?",
        "There were {a} {items} {place} when {name} arrived. By the end of the day {b} of them were gone. "
        "How many {items} were left?",
        "{name} needs {a} {items} for an event {place}, but so far {she} has found only {b}. How many more "
        "{items} does {she} need?",
        "{name} counted {a} {items} {place}, while {other} counted only {b}. How many more {items} did "
        "{name} count than {other}?",
        "Of the {a} {items} {place}, {b} belong to {name} and all the others belong to {other}. How many "
        "{items} belong to {other}?",
        "{name} started the day with {a} {items} {place} and ended it with {b}. How many {items} did {she} "
        "part with during the day?",
        "{name} has set a goal of {a} {units} {of}. In the first month {she} {did} {b} {units}. How many "
        "{units} are still to go?",
    ),
    ("multiply",): (
        "{Place} there are {a} empty {boxes}, and {name} puts {b} {items} {inside} each {box}. How many "
        "{items} does {she} put away in total?",
        "At a charity sale {place}, {name} buys {a} {items}. Each of them costs {b} dollars. How many "
        "dollars does {name} pay in total?",
        "Every day {name} sorts {a} {items} {place}. If {she} keeps working at the same pace, how many "
        "{items} will {she} sort in {b} days?",
        "{name} leads a team of {a} volunteers {place}. Each volunteer carries {b} {items} to {other}. How "
        "many {items} do the volunteers carry altogether?",
        "{name} lays out {items} {place} in {a} straight rows, with {b} {items} in every row. How many "
        "{items} does {she} lay out?",
        "{other} owns {a} of the {items} {place}. {name} owns {b} times as many {items} as {other} does. "
        "How many {items} does {name} own?",
        "Every week {name} {does} {a} {units} {of}, and {she} never skips a week. How many {units} is that "
        "in {b} weeks?",
    ),
    ("divide",): (
        "{name} has {a} {items} to put away {place}. {She} puts {b} of them {inside} each {box} until none "
        "are left. How many {boxes} does {she} fill?",
        "{name} shares {a} {items} equally among the {b} children who came to help {place}. How many "
        "{items} does each child get?",
        "There are {a} {items} {place}, spread evenly over {b} {boxes}. {name} empties one {box} and takes "
        "everything to {other}. How many {items} does {she} take?",
        "It took {name} {b} days to sort {a} {items} {place}, working at the same pace every day. How many "
        "{items} did {she} sort each day?",
        "At a charity sale {place}, {name} paid {a} dollars for {b} {items} that all had the same price. "
        "How many dollars did each of them cost?",
        "{name} lines up {a} {items} {place} in {b} rows of the same length. How many {items} are there in each row?",
        "{name} {did} {a} {units} {of} in {b} weeks, exactly the same number every week. How many {units} "
        "did {she} manage each week?",
    ),
    ("add", "subtract"): (
        "{name} had {a} {items} {place} and got {b} more from {other}. Later {she} gave away {c} of them. "
        "How many {items} does {name} have left?",
        "In the morning there were {a} {items} {place}. At noon {name} delivered {b} more, and by the "
        "evening {c} had been taken away. How many {items} remained?",
        "{name} found {a} {items} {place} and {other} found {b}. When they looked closely, {c} of the "
        "{items} were damaged. How many {items} were not damaged?",
    ),
    ("subtract", "add"): (
        "{name} had {a} {items} {place}. {She} gave {b} of them to {other} and then picked up {c} new ones. "
        "How many {items} does {name} have now?",
        "Of the {a} {items} {place}, {b} were damaged, so {name} threw those away. Then {other} delivered "
        "{c} new ones. How many {items} are there now?",
    ),
    ("subtract", "subtract"): (
        "{name} had {a} {items} {place}. {She} handed {b} of them to {other} and another {c} to a visitor. "
        "How many {items} does {name} still have?",
        "{name} has set a goal of {a} {units} {of}. {She} {did} {b} {units} in the first month and {c} in "
        "the second. How many {units} are still to go?",
    ),
    ("multiply", "add"): (
        "{Place}, {name} fills {a} {boxes} with {b} {items} each. Then {other} turns up with {c} more "
        "{items}. How many {items} are there in all?",
        "At a charity sale {place}, {name} buys {a} {items} for {b} dollars each, and then pays {c} dollars "
        "for the taxi home. How many dollars does {she} spend in total?",
        "{name} {did} {a} {units} {of} in each of {b} weeks, and then another {c} {units} in the week after "
        "that. How many {units} is that in all?",
    ),
    ("multiply", "subtract"): (
        "There are {a} {boxes} {place} with {b} {items} {inside} each {box}. {name} takes {c} of the "
        "{items} away. How many {items} are left {inside} the {boxes}?",
        "At a charity sale {place}, {name} takes in {b} dollars for each of {a} {items}, but has to return "
        "{c} dollars to {other}. How many dollars does {name} have left?",
        "{Place}, {name} got {a} {boxes} ready with {b} {items} {inside} each. During the night {c} of the "
        "{items} disappeared. How many {items} were still there in the morning?",
    ),
    ("add", "multiply"): (
        "Every day {name} sorts {a} {items} in the morning and {b} in the afternoon {place}. How many "
        "{items} does {she} sort in {c} days?",
        "Every month {name} {does} {a} {units} {of} in the first half and {b} in the second half. How many "
        "{units} is that in {c} months?",
        "{Place}, {name} puts {a} large {items} and {b} small {items} {inside} each of {c} {boxes}. How "
        "many {items} does {she} put away in total?",
    ),
    ("subtract", "multiply"): (
        "{name} sells {items} for {a} dollars each at a charity sale {place}. Each of them cost {her} club "
        "{b} dollars to buy. How many dollars does the club gain on {c} of them?",
        "There is room for {a} {items} {inside} each {box} {place}, but {name} leaves {b} spaces empty "
        "{inside} each one. How many {items} does {she} put {inside} {c} {boxes}?",
    ),
    ("add", "divide"): (
        "{name} brings {a} {items} and {other} brings {b}. {Place} they put all of them away, with {c} "
        "{items} {inside} each {box}. How many {boxes} do they fill?",
        "{name} collected {a} {items} {place} on Friday and {b} on Saturday, and then shared them equally "
        "among {c} friends. How many {items} did each friend get?",
    ),
    ("subtract", "divide"): (
        "{name} had {a} {items} {place} and kept {b} of them. The rest were shared equally among {c} "
        "visitors. How many {items} did each visitor get?",
        "Of the {a} {items} {place}, {b} are damaged. {name} puts the good ones away, with {c} {inside} "
        "each {box}. How many {boxes} does {she} fill?",
    ),
    ("divide", "add"): (
        "{name} splits {a} {items} evenly over {b} {boxes} {place}. Then {other} puts {c} more {items} "
        "{inside} the first {box}. How many {items} are there {inside} the first {box} now?",
        "{name} and some friends, {b} people in all, share {a} {items} equally {place}. {name} already had "
        "{c} {items} before that. How many {items} does {she} have now?",
    ),
    ("divide", "subtract"): (
        "A group of {b} people share {a} {items} equally {place}. {name} is one of them and passes {c} of "
        "{her} {items} on to {other}. How many {items} does {name} have left?",
        "{name} splits {a} {items} evenly over {b} {boxes} {place}. Then {other} takes {c} {items} away "
        "from one {box}. How many {items} are left {inside} that {box}?",
    ),
}


# One sentence and a question, for the smallest models.
PLAIN: dict[Operations, tuple[str, ...]] = {
    ("add",): (
        "{name} has {a} {items} and buys {b} more. How many {items} does {name} have now?",
        "{name} has {a} {items} and {other} has {b} {items}. How many {items} do they have together?",
    ),
    ("subtract",): (
        "{name} has {a} {items} and gives away {b}. How many {items} does {name} have left?",
        "{name} had {a} {items} and lost {b} of them. How many {items} are left?",
    ),
    ("multiply",): (
        "{name} has {a} {boxes} with {b} {items} {inside} each {box}. How many {items} does {name} have in total?",
        "Each day {name} gets {b} {items}. How many {items} does {name} get in {a} days?",
    ),
}
