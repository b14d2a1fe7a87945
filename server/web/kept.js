// Values that this browser keeps for the next visit, on this machine, for this server's page alone.
// A browser that allows none, or has no room left, keeps nothing; the page works all the same.

const PREFIX = 'tandem.';

export function readKept(name) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + name));
  } catch {
    return null;
  }
}

// Keeping null forgets the value.
export function keep(name, value) {
  try {
    localStorage.removeItem(PREFIX + name);
    if (value !== null) localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // There is no room, or it is not allowed.
  }
}
