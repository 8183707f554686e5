// Types of preact.js from its npm packages; tests/node/tsconfig.json finds them.

export { Component, createContext, Fragment, h, render } from "preact";
export type { ComponentChildren, FunctionComponent, RefObject, VNode } from "preact";
export { useCallback, useContext, useEffect, useId, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
export { batch, computed, effect, untracked, useComputed, useSignalEffect } from "@preact/signals";
export type { ReadonlySignal, Signal } from "@preact/signals";

import type { Signal as SignalType, signal as makeSignal, useSignal as makeOwnSignal } from "@preact/signals";
import type { FunctionComponent, VNode } from "preact";

// A template of one element returns it, one of several an array of them.
export const html: (strings: TemplateStringsArray, ...values: any[]) => VNode<any>;
export function memo<Props>(component: (props: Props) => any): FunctionComponent<Props>;

// A signal that starts as null will hold anything.
export const signal: { (value: null): SignalType<any> } & typeof makeSignal;
export const useSignal: { (value: null): SignalType<any> } & typeof makeOwnSignal;
