// What the browser knows of a language: its own name for itself, its English name, its direction.
import { say } from "./messages.js";

const RIGHT_TO_LEFT = new Set(["Adlm", "Arab", "Hebr", "Mand", "Nkoo", "Rohg", "Samr", "Syrc", "Thaa"]);

function nameIn(locale, code) {
  try {
    return new Intl.DisplayNames([locale], { type: "language", fallback: "none" }).of(code);
  } catch {
    return undefined; // no language tag at all
  }
}

/** "fi" → "Suomi", "ar" → "العربية"; the code itself where the browser knows no name, as of "". */
export function nativeName(code) {
  if (!code) return say("noLanguage");
  const name = nameIn(code, code) ?? nameIn("en", code) ?? code;
  const [first, ...rest] = name;
  try {
    return first.toLocaleUpperCase(code) + rest.join("");
  } catch {
    return name;
  }
}

/** A name among other text, so that one from right to left leaves what follows it in its place. */
export const isolated = (name) => `\u2068${name}\u2069`;

export const englishName = (code) => (code && nameIn("en", code)) || code;

/** "rtl" or "ltr" by the usual script of the language; "auto" (the first letters decide) where that is not known. */
export function direction(code) {
  try {
    const script = new Intl.Locale(code).maximize().script;
    return script ? (RIGHT_TO_LEFT.has(script) ? "rtl" : "ltr") : "auto";
  } catch {
    return "auto";
  }
}
