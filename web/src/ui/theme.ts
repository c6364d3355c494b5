// Light and dark: what the person chose, or else what the machine asks for.

import { LINES, type Theme } from "../charts/palette";

const KEY = "fillerscope-theme";
const followers = new Set<() => void>();

export function theme(): Theme {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === "light" || chosen === "dark") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** Called whenever light and dark change places. Gives what ends it. */
export function onTheme(follow: () => void): () => void {
  followers.add(follow);
  return () => followers.delete(follow);
}

function tell(): void {
  LINES[theme()].forEach((colour, i) => document.documentElement.style.setProperty(`--line-${i}`, colour));
  followers.forEach((follow) => follow());
}

export function startTheme(): void {
  const chosen = stored();
  if (chosen) document.documentElement.dataset.theme = chosen;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  tell();
}

export function switchTheme(): void {
  const next = theme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // A page from disk may not be allowed to store anything.
  }
  tell();
}

function stored(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}
