// The token that opens this explorer. It comes with the address, and is kept for reloads and other tabs.

const KEY = "fillerscope-token";
let token = "";
let isGiven = false; // with the address of this page

/** Takes the token out of the address, where it could be seen and copied, or else from an earlier visit. */
export function takeToken(): void {
  const given = new URLSearchParams(location.search).get("token");
  token = given ?? stored();
  isGiven = given !== null;
  if (given === null) return;
  history.replaceState(null, "", location.pathname + location.hash);
  try {
    localStorage.setItem(KEY, given); // of this host and port alone, unlike a cookie
  } catch {
    // Nothing may be stored here: the page works until it is loaded again.
  }
}

/** Whether whoever opened this page knew the token. What stands behind the # of another address may be the choice of a
 *  site that led here. */
export function cameWithToken(): boolean {
  return isGiven;
}

/** The header without which no data is sent. */
export function authorization(): Record<string, string> {
  return { Authorization: `Bearer ${token}` };
}

function stored(): string {
  try {
    return localStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}
