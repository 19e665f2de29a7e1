'use strict';
/**
 * The author elaborates `statement` followed by `proof` and exports what came of it (export.js).
 *
 * The proof text is an adversary's, and elaborating it may run code of his: nothing that leaves
 * this process is believed. What is refused here saves the judge's time and gives a refusal its
 * reason; no verdict rests on it.
 *
 * 1. The text is one theorem, from its first to its last byte.
 * 2. It has no word that makes Lean run code, and its tactics' options are literals.
 * 3. No error among the messages of the parser and the elaborator, no `sorry`.
 *
 * Memory is put back after every proof, so that none sees what another one did.
 */
const { exported } = require('./export.js');
const { isError } = require('./frontend.js');
const { Closed } = require('./runtime.js');
const { Refusal, shown } = require('./verdicts.js');

// With these a proof makes Lean run its code, for certain; there are other ways.
const CODE = new Set([
  'native_decide', 'native', 'run_tac', 'by_elab', 'unsafe', 'include_str', '@[',
]);
// The options of a tactic are terms that Lean evaluates. Such an item is `(name := term)`.
const OPTIONS = new Set(['Lean.Parser.Tactic.valConfigItem', 'Lean.Parser.Tactic.config']);
const LITERAL = new Set([
  'num', 'str', 'char', 'scientific', 'null', 'choice', 'term[_]', 'term{}',
  'Lean.Parser.Term.structInst', 'Lean.Parser.Term.structInstFields',
  'Lean.Parser.Term.structInstField', 'Lean.Parser.Term.structInstLVal',
  'Lean.Parser.Term.structInstFieldDef', 'Lean.Parser.Term.optEllipsis',
  'Lean.Parser.Term.anonymousCtor', 'Lean.Parser.Term.dotIdent',
]);
const NAMED = new Set(['Lean.Parser.Term.structInstLVal', 'Lean.Parser.Term.dotIdent']);

class Author {
  constructor({ frontend, restore }) {
    this.lean = frontend;
    this.restore = restore;
  }

  /** Return `{why, messages, payload}`: `elaborated` and the export, or why there is none. */
  answer({ name, statement, proof }) {
    try {
      const { environment, messages } = this.elaborate(statement + proof);
      const payload = exported(this.lean, environment, name, 'value');
      return { why: 'elaborated', messages, payload };
    } catch (error) {
      const { why, messages } = verdictOn(error);
      return { why, messages, payload: Buffer.alloc(0) };
    } finally {
      this.restore();
    }
  }

  elaborate(text) {
    const { lean } = this;
    const syntax = lean.syntax(text);
    const forbidden = forbiddenIn(syntax);
    if (forbidden) throw new Refusal('forbidden', [forbidden]);
    const { environment, isWhole, parserMessages, messages } = lean.elaborate(text);
    const said = messages.map(shown);
    if (!isTheorem(syntax)) throw new Refusal('unparsable', ['not a theorem', ...said]);
    if (parserMessages.some(isError)) throw new Refusal('unparsable', said);
    if (!isWhole) throw new Refusal('unparsable', ['text after the theorem', ...said]);
    if (messages.some(isError)) throw new Refusal('wrong_answer', said);
    if (messages.some(({ kind }) => kind === 'hasSorry')) throw new Refusal('forbidden', ['sorry']);
    return { environment, messages: said };
  }
}

function verdictOn(error) {
  if (error instanceof Refusal) return error;
  if (error instanceof Closed) return new Refusal('forbidden', [error.message]);
  return new Refusal('crashed', [String(error)]);
}

const isTheorem = ({ kind, parts }) =>
  kind === 'Lean.Parser.Command.declaration' && parts[1].kind === 'Lean.Parser.Command.theorem';

/** Return what a part of the syntax holds that a proof may not, in words, if anything. */
function forbiddenIn({ kind, parts, word }) {
  if (CODE.has(word)) return `uses ${word}`;
  const value = parts.slice(parts.findIndex((part) => part.word === ':=') + 1);
  if (OPTIONS.has(kind) && !value.every(isLiteral)) return 'evaluates the value of an option';
  return parts.map(forbiddenIn).find(Boolean);
}

/** Return whether there is nothing to evaluate: `1`, `true`, `.all`, `.pos [1]`, `{x := 1}`. */
function isLiteral(node) {
  const { kind, word, parts, isName } = node;
  if (kind === null) return !isName || word === 'true' || word === 'false';
  if (kind === 'Lean.Parser.Term.app') {
    return parts[0].kind === 'Lean.Parser.Term.dotIdent' && parts.every(isLiteral);
  }
  return LITERAL.has(kind) && (NAMED.has(kind) || parts.every(isLiteral));
}

module.exports = { Author };
