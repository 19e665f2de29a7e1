'use strict';
/**
 * The author elaborates `statement` followed by `proof` and exports the result (export.js).
 *
 * An adversary may have written the proof, and elaborating it may run code in it. So nothing that
 * this process says is believed. If it refuses a proof, the judge's time is saved, and the verdict
 * has a more precise reason; but no proof passes because of it. This process requires of a proof:
 *
 * 1. The proof has no word that makes Lean run code, and the options of its tactics are literals.
 * 2. The text is exactly one command, of the same form as the statement's command.
 * 3. The elaborator reports no error and no `sorry`.
 *
 * Steps 1 and 2 compare with the statement followed by `sorry`. So what the statement itself
 * contains, such as an attribute or `open ... in`, is not held against a proof.
 *
 * To save time, a proof is first elaborated without checks by the author's kernel, since the
 * judge's kernel checks it anyway. Sometimes the result differs from that with checks: a tactic
 * such as `first` goes on with its next alternative if the kernel refuses one. So a proof is
 * elaborated again with checks in two cases: if elaborating fails and the kernel refuses a
 * declaration that was added before the theorem; and if the judge has refused the export (then the
 * caller sets `checked`).
 */
const { exportTheorem } = require('./export.js');
const { isError } = require('./frontend.js');
const { Refusal } = require('./refusal.js');

// Words by which a proof certainly makes Lean run its code. There are other ways, too.
const CODE = new Set([
  'native_decide', 'native', 'run_tac', 'by_elab', 'unsafe', 'include_str', '@[',
]);
// The options of a tactic, `(name := term)`, are terms that Lean evaluates, so they must be
// literals.
const OPTIONS = new Set(['Lean.Parser.Tactic.valConfigItem', 'Lean.Parser.Tactic.config']);
// Kinds of syntax that a literal may consist of. The parts of those in NAMED may be names.
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

  /** Return `{why: 'elaborated', payload}`, with the export as payload, or throw a Refusal. */
  answer({ name, statement, proof, checked }) {
    const environment = this.elaborate(name, statement, proof, checked);
    return { why: 'elaborated', payload: exportTheorem(this.lean, environment, name, 'value') };
  }

  /** Elaborate the proof and return the environment with the theorem. May throw a Refusal. */
  elaborate(name, statement, proof, isChecked) {
    const { lean } = this;
    const command = lean.parseCommand(statement + proof);
    const syntax = lean.toTree(command.syntax);
    const withSorry = lean.toTree(lean.parseCommand(`${statement} sorry`).syntax);
    if (countForbidden(syntax) > countForbidden(withSorry)) throw new Refusal('forbidden');
    if (formOf(syntax) !== formOf(withSorry)) throw new Refusal('unparsable');
    if (command.messages.some(isError)) throw new Refusal('unparsable');
    if (!command.isWhole) throw new Refusal('unparsable');
    let { environment, messages } = isChecked
      ? lean.elaborate(command)
      : lean.elaborateUnchecked(command, statement);
    if (messages.some(isError) && !this.acceptsDeclarationsBefore(environment, name)) {
      ({ environment, messages } = lean.elaborate(command));
    }
    if (messages.some(isError)) throw new Refusal('wrong_answer');
    if (messages.some((message) => message.kind() === 'hasSorry')) throw new Refusal('forbidden');
    return environment;
  }

  /** Return whether the kernel accepts the declarations that were added before this theorem. */
  acceptsDeclarationsBefore(environment, name) {
    const { lean } = this;
    const { unchecked } = lean.rt.noticed;
    const theorem = lean.findConstant(environment, lean.rt.parseName(name));
    const before = theorem === null ? unchecked : unchecked.slice(0, -1); // the theorem is the last
    return before.every((declaration) => lean.accepts(...declaration));
  }
}

/** Return the kind of a command, such as theorem, or (open in theorem) for `open ... in`. */
function formOf({ kind, parts }) {
  if (kind === 'Lean.Parser.Command.in') return `(${formOf(parts[0])} in ${formOf(parts[2])})`;
  return kind === 'Lean.Parser.Command.declaration' ? parts[1].kind : kind;
}

/** Count the words in CODE, and the options whose value is not a literal. */
function countForbidden({ kind, parts, word }) {
  const value = parts.slice(parts.findIndex((part) => part.word === ':=') + 1);
  const isEvaluated = OPTIONS.has(kind) && !value.every(isLiteral);
  const count = Number(CODE.has(word) || isEvaluated);
  return parts.reduce((sum, part) => sum + countForbidden(part), count);
}

/** Return whether a term needs no evaluation: `1`, `true`, `.all`, `.pos [1]`, `{x := 1}`. */
function isLiteral(node) {
  const { kind, word, parts, isName } = node;
  if (kind === null) return !isName || word === 'true' || word === 'false';
  if (kind === 'Lean.Parser.Term.app') {
    return parts[0].kind === 'Lean.Parser.Term.dotIdent' && parts.every(isLiteral);
  }
  return LITERAL.has(kind) && (NAMED.has(kind) || parts.every(isLiteral));
}

module.exports = { Author };
