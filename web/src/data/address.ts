// The address bar holds the state, so that a view can be sent to somebody.

import { parse, print, type State } from "./state";

export class Address {
  state: State = parse(location.hash);
  private readonly followers: (() => void)[] = [];

  constructor() {
    window.addEventListener("hashchange", () => {
      this.state = parse(location.hash);
      this.tell();
    });
  }

  set(changes: Partial<State>, tell = true): void {
    this.state = { ...this.state, ...changes };
    history.replaceState(null, "", `#${print(this.state)}`);
    if (tell) this.tell();
  }

  follow(follower: () => void): void {
    this.followers.push(follower);
  }

  private tell(): void {
    this.followers.forEach((follower) => follower());
  }
}
