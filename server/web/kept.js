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

// Storing null deletes the value. Returns whether the value is stored.
export function keep(name, value) {
  try {
    if (value === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, JSON.stringify(value));
    return true;
  } catch {
    return false; // storage is full or not allowed
  }
}
