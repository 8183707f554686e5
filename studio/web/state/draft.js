// Changing a part of a tree without changing the tree: each node is copied once, and its unchanged parts are shared.
// @ts-check

/** The new version of a tree while it is made. A node belongs to it once it was copied or made by it. */
export class Draft {
  constructor() {
    /** @type {Set<object>} */
    this.owned = new Set();
  }

  /**
   * Return a copy of the node that may be changed, or the node if it is one.
   * @template {object} T @param {T} node @returns {T}
   */
  own(node) {
    return this.owned.has(node) ? node : this.made(copyOf(node));
  }

  /**
   * Take a node that was made for the new version, so that it is not copied.
   * @template {object} T @param {T} node @returns {T}
   */
  made(node) {
    this.owned.add(node);
    return node;
  }

  /**
   * Put a changeable copy of a part in its place, and return it; `parent` is changeable.
   * @template {object} T @template {keyof T} K @param {T} parent @param {K} key @returns {T[K]}
   */
  part(parent, key) {
    const child = /** @type {any} */ (this.own(/** @type {any} */ (parent[key])));
    parent[key] = child;
    return child;
  }
}

/** Return an object for keys that others chose: without a prototype `constructor` and `__proto__` are keys like others. */
export const dictionary = () => Object.create(null);

/** @param {any} node */
function copyOf(node) {
  if (Array.isArray(node)) return node.slice();
  return Object.getPrototypeOf(node) === null ? Object.assign(dictionary(), node) : { ...node };
}

/** @type {WeakMap<readonly any[], {places: Map<string, number>, size: number}>} */
const indexes = new WeakMap(); // of arrays that were searched: made once for each version, as far as it has grown

/**
 * Return the index of the element with that key, or -1. Elements are only ever added at the end of an array.
 * @param {readonly {key: string}[]} array @param {string} key
 */
export function placeOf(array, key) {
  let index = indexes.get(array);
  if (!index) indexes.set(array, index = { places: new Map(), size: 0 });
  for (; index.size < array.length; index.size += 1) index.places.set(array[index.size].key, index.size);
  return index.places.get(key) ?? -1;
}
