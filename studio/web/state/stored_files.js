// @ts-check
// The files of messages that are not sent yet, in a database of the browser: they are too large for its local storage.

const DATABASE = "agenticx";
const STORE = "draft files"; // by the id of the draft

/** @typedef {import("./drafts.js").File} File */

/** @type {Promise<IDBDatabase>|undefined} */
let opened;

/** Return the files that are stored for a draft. @param {string} id @returns {Promise<File[]>} */
export async function readFiles(id) {
  return await request("readonly", (store) => store.get(id)) ?? [];
}

/** Store the files of a draft instead of those that are stored; none remove them. @param {string} id @param {File[]} files */
export function storeFiles(id, files) {
  return request("readwrite", (store) => files.length ? store.put(files, id) : store.delete(id));
}

/** @param {IDBTransactionMode} mode @param {(store: IDBObjectStore) => IDBRequest} act @returns {Promise<any>} */
async function request(mode, act) {
  opened ??= open();
  const transaction = (await opened).transaction(STORE, mode);
  return new Promise((resolve, reject) => {
    const asked = act(transaction.objectStore(STORE));
    transaction.commit(); // now, as the page may go
    transaction.oncomplete = () => resolve(asked.result);
    transaction.onabort = () => reject(transaction.error);
  });
}

/** @returns {Promise<IDBDatabase>} */
function open() {
  return new Promise((resolve, reject) => {
    const asked = indexedDB.open(DATABASE);
    asked.onupgradeneeded = () => { asked.result.createObjectStore(STORE); };
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(asked.error);
  });
}
