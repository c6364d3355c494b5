// What is looked at stands in the address bar, so that a view can be sent to somebody.

type State = Record<string, string>;

export class Address {
  private readonly followers: (() => void)[] = [];
  private state: State;

  constructor() {
    this.state = read();
    window.addEventListener("hashchange", () => {
      this.state = read();
      this.tell();
    });
  }

  get(key: string, otherwise = ""): string {
    return this.state[key] ?? otherwise;
  }

  number(key: string, otherwise: number): number {
    const found = Number.parseInt(this.get(key), 10);
    return Number.isFinite(found) ? found : otherwise;
  }

  /** A list of names, each of which may hold any character. */
  list(key: string): Set<string> {
    return new Set(this.get(key).split(",").filter(Boolean).map(decoded));
  }

  set(changes: Record<string, string | number | null | undefined>, tell = true): void {
    for (const [key, value] of Object.entries(changes)) {
      if (value === null || value === undefined || value === "") delete this.state[key];
      else this.state[key] = String(value);
    }
    history.replaceState(null, "", `#${new URLSearchParams(this.state)}`);
    if (tell) this.tell();
  }

  follow(follower: () => void): void {
    this.followers.push(follower);
  }

  private tell(): void {
    this.followers.forEach((follower) => follower());
  }
}

/** Somebody may have cut an address in the middle of a character. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function joined(names: Iterable<string>): string {
  return [...names].map(encodeURIComponent).join(",");
}

function read(): State {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}
