// Preact, its hooks and signals, and templates in JavaScript (htm), as one module without a second copy of Preact.

import htm from "htm";
import { Component, createContext, Fragment, h, render } from "preact";

export { Component, createContext, Fragment, h, render };
export { useCallback, useContext, useEffect, useId, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
export { batch, computed, effect, signal, untracked, useComputed, useSignal, useSignalEffect } from "@preact/signals";

export const html = htm.bind(h);

/** Return a component that renders only if a prop is another value than before. */
export function memo(component) {
  class Memo extends Component {
    shouldComponentUpdate(props) {
      const names = new Set([...Object.keys(props), ...Object.keys(this.props)]);
      return [...names].some((name) => props[name] !== this.props[name]);
    }

    render(props) {
      return h(component, props);
    }
  }
  Memo.displayName = `memo(${component.name})`;
  return Memo;
}
