/-!
The checker for a native Lean: two processes that exchange lines of JSON with their owner. The first
part of the program is Export.lean.

    lean --run Checker.lean author
    lean --run Checker.lean judge

The author elaborates a proof, which may make Lean run code of the proof. Then it exports the
elaborated proof as data. Nothing that it says is believed. The judge never sees the text of a
proof. It elaborates the statement and reads the export. Its kernel checks each constant, in the
environment after the header. The judge itself finds the axioms that the constants depend on.

Both processes first import the header, the Lean code before a statement, such as imports:
{"header"} -> {"ready", "why"}. After that each request has an "id" and gets an answer {"id", "why",
"messages", "bytes"}. A line with "bytes" is followed by so many bytes: an export, or nothing if the
number is 0. These are the other fields of a request, and the values of "why" in its answer:

    author   {"name", "statement", "proof"} -> "elaborated", or a reason of verdicts.py
    judge    {"name", "statement"} -> "stated" or "bad statement"
             {"name", "statement", "bytes"} -> "passed", "forbidden" or "bad statement"

Either role answers "crashed" if the request raises an error.
-/
open Lean Elab

namespace RapidChecker

/-! ## Elaborating -/

/-- Words by which a proof makes Lean run its code. Refusing them saves time; security does not
depend on it. -/
def codeWords : List String :=
  ["native_decide", "native", "run_tac", "by_elab", "unsafe", "include_str", "@["]

/-- The kinds of syntax that the value of an option may consist of, besides words and literals. -/
def literalKinds : List Name := [nullKind, ``Parser.Term.structInst, ``Parser.Term.structInstFields,
  ``Parser.Term.structInstField, ``Parser.Term.structInstFieldDef, ``Parser.Term.optEllipsis,
  ``Parser.Term.anonymousCtor, ``Parser.Term.app, ``Parser.Term.paren, ``«term[_]»]

/-- Whether a term needs no evaluation: numbers, texts, structures and lists of these, constructors
such as `.all` and `.pos [1]`. -/
partial def isLiteral : Syntax → Bool
  | .missing => false
  | .atom .. => true
  | .ident _ _ name _ => name == `true || name == `false
  | .node _ kind parts =>
    kind == ``Parser.Term.dotIdent || kind == ``Parser.Term.structInstLVal
      || (isLitKind kind || literalKinds.contains kind) && parts.toList.all isLiteral

/-- The reasons not to elaborate a command: a line for each word in `codeWords`, and for each option
of a tactic whose value is not a literal. -/
partial def refusals (stx : Syntax) : String := match stx with
  | .missing => ""
  | .atom _ word => if codeWords.contains word then s!"uses {word}\n" else ""
  | .ident _ _ name _ =>
    if codeWords.contains name.toString then s!"uses {name}\n" else ""
  | .node _ kind parts =>
    -- `(maxSteps := 3)` and `(config := {maxSteps := 3})`
    if (kind == ``Parser.Tactic.valConfigItem || kind == ``Parser.Tactic.config)
        && !isLiteral stx[3] then "an option's value is computed\n"
    else parts.toList.foldl (fun before part => before ++ refusals part) ""

/-- The kind of a command, such as theorem; for `open ... in theorem` both kinds. -/
partial def formOf (stx : Syntax) : Name :=
  if stx.isOfKind ``Parser.Command.in then
    .str (formOf stx[0] ++ formOf stx[2]) "in"
  else if stx.isOfKind ``Parser.Command.declaration then stx[1].getKind
  else stx.getKind

/-- The first command of a text. `isWhole` is whether there is no text after the command. -/
structure Parsed where
  input : Parser.InputContext
  stx : Syntax
  messages : MessageLog
  isWhole : Bool

/-- Parse the first command of a text, after the header. -/
def parse (base : Command.State) (text : String) : Parsed :=
  let input := Parser.mkInputContext text "proof.lean"
  let scope := base.scopes.head!
  let context : Parser.ParserModuleContext :=
    { env := base.env, options := scope.opts,
      currNamespace := scope.currNamespace, openDecls := scope.openDecls }
  let (stx, parser, messages) := Parser.parseCommand input context {} {}
  let (rest, _, restMessages) := Parser.parseCommand input context parser {}
  let isWhole := rest.isOfKind ``Parser.Command.eoi && !restMessages.hasErrors
  { input, stx, messages, isWhole }

/-- Elaborate a command after the header. Return the environment and all messages. -/
def elaborate (base : Command.State) (parsed : Parsed) : IO (Environment × MessageLog) := do
  let state ← IO.mkRef { base with messages := {} }
  let commandContext : Command.Context :=
    { fileName := "proof.lean", fileMap := parsed.input.fileMap, snap? := none, cancelTk? := none }
  let _ ← ((Command.elabCommandTopLevel parsed.stx).run commandContext state).toIO'
  let after ← state.get
  return (after.env, parsed.messages ++ after.messages)

/-- Export the constants of these names and those that they depend on, each after the constants that
it uses, but not those that the header has or that are in `written`. Return `written` with the names
of all exported constants. -/
partial def writeConstants (header : Kernel.Environment) (env : Environment) :
    List Name → NameSet → Write NameSet
  | [], written => return written
  | name :: others, written => do
    if written.contains name || (header.find? name).isSome then
      return ← writeConstants header env others written
    let some constant := env.find? name | throw s!"uses the unknown {name}"
    let written ← writeConstants header env (usesOf constant) (written.insert name)
    writeConstant constant
    writeConstants header env others written

/-! ## Author and judge -/

/-- The answer to a request, with the text of an export if there is one. -/
structure Answer where
  why : String
  messages : List String := []
  text? : Option String := none

/-- The messages of a log as texts, each with its line. -/
def renderMessages (log : MessageLog) : IO (List String) := log.toList.mapM fun message => do
  return s!"line {message.pos.line}: {← message.data.toString}"

/-- Elaborate a proof and export the result. What the statement itself contains, such as an
attribute or `open ... in`, is not held against the proof. -/
def author (base : Command.State) (name : Name) (statement proof : String) : IO Answer := do
  let parsed := parse base (statement ++ proof)
  let stated := parse base (statement ++ " sorry")
  let why := refusals parsed.stx
  if why != refusals stated.stx then return { why := "forbidden", messages := [why] }
  unless formOf parsed.stx == formOf stated.stx && parsed.isWhole && !parsed.messages.hasErrors do
    let messages ← renderMessages parsed.messages
    return { why := "unparsable", messages := "not one theorem" :: messages }
  let (env, log) ← elaborate base parsed
  let messages ← renderMessages log
  if log.hasErrors then return { why := "wrong_answer", messages }
  if log.toList.any (·.kind == `hasSorry) then
    return { why := "forbidden", messages := ["sorry"] }
  let some (.thmInfo theorem_) := env.find? name
    | return { why := "forbidden", messages := [s!"{name} is not a theorem afterwards"] }
  let write : Write Unit := do
    let used := theorem_.value.getUsedConstants.toList
    let _ ← writeConstants base.env.toKernelEnv env used {}
    writeProof theorem_.value
  match write.run {} with
  | .ok ((), writer) => return { why := "elaborated", messages, text? := writer.text }
  | .error why => return { why := "forbidden", messages := [why] }

/-- What is to be proved: the theorem without its value, and a reader that has the constants which
the statement adds, such as the function of a `match`. -/
structure Goal where
  head : ConstantVal
  reader : Reader

/-- Elaborate a statement, with `sorry` for its proof. Return the goal, or the messages if the
statement is not accepted. -/
def goalOf (base : Command.State) (trusted : NameSet) (name : Name) (statement : String) :
    IO (Except (List String) Goal) := do
  let parsed := parse base (statement ++ " sorry")
  let (env, log) ← elaborate base parsed
  if log.hasErrors then return .error (← renderMessages log)
  unless parsed.isWhole do
    return .error ["more than one command: those before it belong in its header"]
  let some (.thmInfo goal) := env.find? name | return .error ["it declares no theorem of this name"]
  let header := base.env.toKernelEnv
  let prepare : Except String Goal := do
    let used := goal.type.getUsedConstants.toList
    let (statedNames, writer) ← (writeConstants header env used {}).run {}
    let read : Read Unit := do
      trust used
      readLines 1 (writer.text.splitOn "\n")
    let ((), reader) ← read.run { header, trusted }
    return {
      head := goal.toConstantVal,
      reader := { header, trusted := reader.trusted, kernel := reader.kernel,
                  stated := statedNames } }
  return prepare.mapError fun why => [why]

/-- Read an export and have the kernel check that it proves the goal. Return `trusted` with the
constants that the export uses (`Reader.trusted`). -/
def judge (goal : Goal) (trusted : NameSet) (text : String) : Except String NameSet := do
  let read : Read Unit := do
    readLines 1 (text.splitOn "\n")
    let some value := (← get).proof | throw "no proof"
    declare (.thmDecl { goal.head with value, all := [goal.head.name] }) goal.head.name
  let ((), reader) ← read.run { goal.reader with trusted }
  return reader.trusted

/-- Maximum number of messages in an answer. -/
def maxMessages : Nat := 5
/-- Maximum length of a message. -/
def maxCharacters : Nat := 500

/-- A command before those of the header. Without it, an unknown name in a statement, such as a name
of Mathlib, would be a variable, and another statement would be proved. -/
def firstCommand : String := "set_option autoImplicit false"

/-- Throw the first error of a log. -/
def throwFirstError (log : MessageLog) : IO Unit := do
  for message in log.toList do
    if message.severity matches .error then throw <| .userError (← message.data.toString)

/-- Import the modules of the header and elaborate its commands. Throws the first error. -/
def importHeader (text : String) : IO Command.State := do
  let input := Parser.mkInputContext (text ++ "\n") "header.lean"
  let (header, parser, messages) ← Parser.parseHeader input
  let (env, messages) ← processHeader header {} messages input
  -- A failed import is only a message here, and `IO.processCommands` drops earlier messages.
  throwFirstError messages
  let first := Parser.mkInputContext firstCommand "first.lean"
  let state := (← IO.processCommands first {} (Command.mkState env messages {})).commandState
  let state := (← IO.processCommands input parser state).commandState
  throwFirstError state.messages
  return state

/-- What a judge keeps between requests: goals by name and statement, and `Reader.trusted`. -/
structure Memory where
  goals : Std.TreeMap String Goal := {}
  trusted : NameSet := {}

/-- The judge's answer to a statement, or to an export if there is one. -/
def answerJudge (base : Command.State) (memory : IO.Ref Memory) (name statement : String)
    (text? : Option String) : IO Answer := do
  let cache ← memory.get
  let key := (Json.str name).compress ++ statement
  let goal ← match cache.goals.get? key with
    | some goal => pure goal
    | none => match ← goalOf base cache.trusted name.toName statement with
      | .ok goal =>
        memory.modify fun cache =>
          { goals := cache.goals.insert key goal, trusted := goal.reader.trusted }
        pure goal
      | .error messages => return { why := "bad statement", messages }
  let some text := text? | return { why := "stated" }
  match judge goal (← memory.get).trusted text with
  | .ok trusted =>
    memory.modify fun cache => { cache with trusted }
    return { why := "passed" }
  | .error why => return { why := "forbidden", messages := [why] }

def fieldOf (request : Json) (field : String) : IO String :=
  IO.ofExcept (request.getObjValAs? String field)

/-- Read bytes until there are `count`, including those in `before`. -/
partial def readBytes (stream : IO.FS.Stream) (count : Nat) (before : ByteArray) :
    IO ByteArray := do
  if before.size ≥ count then return before
  let chunk ← stream.read (count - before.size).toUSize
  if chunk.isEmpty then throw (.userError "the request ends early")
  readBytes stream count (before ++ chunk)

/-- Answer one request. If it has bytes, they are read in any case, so that the next line is a
request. -/
def serveOne (role : String) (base : Command.State) (memory : IO.Ref Memory) (request : Json) :
    IO Answer := do
  let name ← fieldOf request "name"
  let statement ← fieldOf request "statement"
  if role == "author" then
    return ← author base name.toName statement (← fieldOf request "proof")
  let .ok count := request.getObjValAs? Nat "bytes" | answerJudge base memory name statement none
  match String.fromUTF8? (← readBytes (← IO.getStdin) count .empty) with
  | some text => answerJudge base memory name statement text
  | none => return { why := "forbidden", messages := ["the export is no UTF-8"] }

/-- Write an answer as a line of JSON, and the export that follows it. -/
def send (fields : List (String × Json)) (text : String := "") : IO Unit := do
  let stdout ← IO.getStdout
  stdout.putStr ((Json.mkObj fields).compress ++ "\n" ++ text)
  stdout.flush

/-- Answer requests until there are no more. -/
partial def serveAll (role : String) (base : Command.State) (memory : IO.Ref Memory) : IO Unit := do
  let line ← (← IO.getStdin).getLine
  if line.isEmpty then return
  let request ← IO.ofExcept (Json.parse line)
  IO.setNumHeartbeats 0 -- otherwise heartbeats, Lean's count of work, add up over all requests
  let answer ←
    try serveOne role base memory request
    catch error => pure { why := "crashed", messages := [toString error] }
  let short := (answer.messages.toArray.extract 0 maxMessages).toList.map fun message =>
    Json.str s!"{message.take maxCharacters}"
  let text := answer.text?.getD ""
  send [("id", toJson (← fieldOf request "id")), ("why", toJson answer.why),
    ("messages", Json.arr short.toArray), ("bytes", toJson text.utf8ByteSize)] text
  serveAll role base memory

/-- Import the header, then answer requests. -/
def serve (role : String) : IO Unit := do
  let header ← fieldOf (← IO.ofExcept (Json.parse (← (← IO.getStdin).getLine))) "header"
  let base ←
    try importHeader header
    catch error => return ← send [("ready", toJson false), ("why", toJson (toString error))]
  send [("ready", toJson true), ("why", toJson "")]
  serveAll role base (← IO.mkRef {})

end RapidChecker

unsafe def main (arguments : List String) : IO Unit := do
  enableInitializersExecution
  initSearchPath (← findSysroot)
  match arguments with
  | [role] => RapidChecker.serve role
  | _ => throw (.userError "usage: lean --run Checker.lean author|judge")
