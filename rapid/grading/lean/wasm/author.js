'use strict';
/**
 * The author elaborates `statement` followed by `proof` and exports what came of it (export.js).
 *
 * The proof text is an adversary's, and elaborating it may run code of his: nothing that leaves
 * this process is believed. What is refused here saves the judge's time and gives a refusal its
 * reason; no verdict rests on it.
 *
 * 1. The proof has no word that makes Lean run code, and its tactics' options are literals.
 * 2. The text is one command from its first to its last byte, and of the statement's form.
 * 3. No error among the messages of the elaborator, no `sorry`.
 *
 * Steps 1 and 2 compare the text with the statement and `sorry`: what a statement itself has, such
 * as an attribute or `open ... in`, is refused in no proof of it.
 *
 * The kernel is left to the judge, where that changes nothing: a proof that fails is elaborated
 * once more with the author's kernel if that refuses anything that was added, and so is, when the
 * caller asks for it (`checked`), one that the judge refused. It may have another way to go on.
 */
const { exported } = require('./export.js');
const { isError } = require('./frontend.js');
const { Refusal } = require('./refusal.js');

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
  constructor(frontend) {
    this.lean = frontend;
  }

  /** Return `{why, payload}`: `elaborated` and the export; throw a Refusal if there is none. */
  answer({ name, statement, proof, checked }) {
    const environment = this.elaborate(name, statement, proof, checked);
    return { why: 'elaborated', payload: exported(this.lean, environment, name, 'value') };
  }

  /** Return the environment with the theorem in it. */
  elaborate(name, statement, proof, isChecked) {
    const { lean } = this;
    const command = lean.command(statement + proof);
    const syntax = lean.tree(command.syntax);
    const stated = lean.tree(lean.command(`${statement} sorry`).syntax);
    if (countForbidden(syntax) > countForbidden(stated)) throw new Refusal('forbidden');
    if (formOf(syntax) !== formOf(stated)) throw new Refusal('unparsable');
    if (command.messages.some(isError)) throw new Refusal('unparsable');
    if (!command.isWhole) throw new Refusal('unparsable');
    let { environment, messages } = isChecked
      ? lean.elaborate(command)
      : lean.elaborateUnchecked(command, statement);
    if (messages.some(isError) && !this.isAccepted(environment, name)) {
      ({ environment, messages } = lean.elaborate(command));
    }
    if (messages.some(isError)) throw new Refusal('wrong_answer');
    if (messages.some((message) => message.kind() === 'hasSorry')) throw new Refusal('forbidden');
    return environment;
  }

  /** Return whether the kernel accepts what was added without it before the theorem, at the end. */
  isAccepted(environment, name) {
    const { lean } = this;
    const { unchecked } = lean.rt.noticed;
    const theorem = lean.findConstant(environment, lean.rt.parseName(name));
    const before = theorem === null ? unchecked : unchecked.slice(0, -1);
    return before.every((declaration) => lean.accepts(...declaration));
  }
}

/** Return which command this is: `theorem`, or `(open in theorem)` in full. */
function formOf({ kind, parts }) {
  if (kind === 'Lean.Parser.Command.in') return `(${formOf(parts[0])} in ${formOf(parts[2])})`;
  return kind === 'Lean.Parser.Command.declaration' ? parts[1].kind : kind;
}

/** Return in how many parts the syntax uses code, or has Lean evaluate the value of an option. */
function countForbidden({ kind, parts, word }) {
  const value = parts.slice(parts.findIndex((part) => part.word === ':=') + 1);
  const isEvaluated = OPTIONS.has(kind) && !value.every(isLiteral);
  const count = Number(CODE.has(word) || isEvaluated);
  return parts.reduce((sum, part) => sum + countForbidden(part), count);
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
