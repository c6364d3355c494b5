// Layers and heads at a glance, one head's profile, and all heads of a layer.

import type { Tokens } from "../data/types";
import { h } from "../ui/dom";
import { HeadMap } from "./headmap";
import { Multiples } from "./multiples";
import { Turn, type Pane, type SharedColours, type Tab } from "./pane";
import { Profile, viewOf } from "./profile";

export class AttentionTab implements Tab {
  readonly element = h("div", { class: "attention" });
  private readonly map: HeadMap;
  private readonly profile: Profile;
  private readonly multiples: Multiples;
  private readonly turn = new Turn();
  readonly colours: SharedColours;

  constructor(private readonly pane: Pane) {
    this.map = new HeadMap(pane);
    this.colours = this.map.colours;
    this.profile = new Profile(pane);
    this.multiples = new Multiples(pane);
    this.element.append(this.map.element, h("div", { class: "column" }, this.profile.element, this.multiples.element));
  }

  destroy(): void {
    [this.map, this.profile, this.multiples].forEach((part) => part.destroy());
  }

  async update(): Promise<void> {
    const { pane } = this;
    if (!pane.overview.has.attention) throw new Error("This run did not measure attention.");
    if (!pane.model.layers) throw new Error("No shard has landed yet.");
    const mine = this.turn.take();
    const tokens = await pane.api.json<Tokens>("tokens", { model: pane.model.name });
    await Promise.all([
      this.map.update(mine),
      this.profile.update(tokens, mine),
      this.multiples.update(mine, viewOf(pane), tokens.regions),
    ]);
  }
}
