// Values that this browser stores on this machine for this server's page. If storage is full or not
// allowed, nothing is stored, and the page works without it.

const PREFIX = 'tandem.';

export function readKept(name) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + name));
  } catch {
    return null;
  }
}

// Storing null deletes the value.
export function keep(name, value) {
  try {
    localStorage.removeItem(PREFIX + name);
    if (value !== null) localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // Storage is full or not allowed.
  }
}
