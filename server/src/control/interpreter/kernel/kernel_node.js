// The inside of a JavaScript or TypeScript context.
//
//     node --expose-internals kernel_node.js IN OUT LANGUAGE     asked through the descriptor IN, answering through OUT
'use strict';
const fs = require('node:fs');
const vm = require('node:vm');
const util = require('node:util');
const module_ = require('node:module');
const path = require('node:path');
const readline = require('node:readline');

const [input, output] = process.argv.slice(2, 4).map(Number);
const typescript = process.argv[4] === 'typescript';
process.argv.length = 1;
let mark = '';
let marks = 0;
let interrupt;

// Imports and requires of the code begin where it runs, and not here.
globalThis.require = module_.createRequire(process.cwd() + '/');
globalThis.display = (...values) =>
  values.forEach((value) => report({ type: 'result', is_main_result: false, ...forms(value) }));

const INTERRUPTED = new Error('Interrupted');
process.on('SIGINT', () => interrupt && interrupt(INTERRUPTED));
process.on('uncaughtException', fail);
process.on('unhandledRejection', fail);

/** What was printed before an event is marked, so that it is sent before it. */
function report(event) {
  marks += 1;
  const sign = '\0' + mark + marks.toString(16).padStart(8, '0') + '\0';
  for (const stream of [1, 2]) write(stream, sign);
  write(output, JSON.stringify({ ...event, after: marks }) + '\n');
}

function write(descriptor, text) {
  let data = Buffer.from(text);
  while (data.length > 0) {
    try {
      data = data.subarray(fs.writeSync(descriptor, data));
    } catch (error) {
      // The pipe is full, and Node has made it one that does not wait.
      if (error.code === 'EAGAIN') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
      else if (error.code === 'EPIPE' || error.code === 'EBADF') return;
      else throw error;
    }
  }
}

function fail(error) {
  const known = error instanceof Error || (error && error.stack);
  const [name, value] = known ? [error.name, String(error.message)] : ['Error', util.inspect(error)];
  const interrupted = error === INTERRUPTED || error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED';
  report({ type: 'error', name, value, traceback: known ? String(error.stack) : value, interrupted });
}

/** A value as text, and as JSON if it is an object that JSON can say. */
function forms(value) {
  const found = { text: typeof value === 'string' ? value : util.inspect(value) };
  if (value === null || typeof value !== 'object') return found;
  for (const [name, method] of [
    ['html', '_toHtml'],
    ['svg', '_toSvg'],
    ['markdown', '_toMarkdown'],
    ['png', '_toPng'],
  ]) {
    try {
      if (typeof value[method] === 'function') found[name] = String(value[method]());
    } catch {}
  }
  const prototype = Object.getPrototypeOf(value);
  if (Array.isArray(value) || prototype === null || prototype.constructor?.name === 'Object') {
    try {
      const json = JSON.stringify(value);
      if (json !== undefined) found.json = JSON.parse(json);
    } catch {}
  }
  return found;
}

function withoutTypes(code) {
  if (!typescript) return code;
  const options = { mode: 'transform', sourceMap: false };
  if (module_.stripTypeScriptTypes) return module_.stripTypeScriptTypes(code, options);
  // Versions of Node that cannot do it themselves have it from the package that newer ones have inside.
  const { transformSync } = require(path.join(__dirname, 'amaro.js'));
  return transformSync(code, { mode: 'transform', filename: 'cell.ts' }).code;
}

const IMPORT = /^[ \t]*import\s+(?:([\w$*{},\s]+?)\s+from\s+)?(['"])([^'"\n]+)\2[ \t]*;?/gm;

/** `import` of modules as a script can have it. Names become variables, so that a cell can be run again. */
function withoutImports(code) {
  return code.replace(IMPORT, (_, clause, _quote, name) => {
    const loaded = `await import(${JSON.stringify(name)})`;
    if (clause === undefined) return `${loaded};`;
    const names = [];
    let rest = clause.trim();
    const whole = /^([\w$]+)\s*(?:,\s*)?/.exec(rest);
    if (whole) {
      names.push(`default: ${whole[1]}`);
      rest = rest.slice(whole[0].length);
    }
    const space = /^\*\s*as\s+([\w$]+)/.exec(rest);
    if (space) return `var ${space[1]} = ${loaded};${whole ? `var { ${names.join()} } = ${space[1]};` : ''}`;
    for (const one of rest.replace(/[{}]/g, '').split(',')) {
      const [from, to] = one.trim().split(/\s+as\s+/);
      if (from && from !== 'type') names.push(to ? `${from}: ${to}` : from);
    }
    return `var { ${names.join(', ')} } = ${loaded};`;
  });
}

function withAwait(code) {
  try {
    return require('internal/repl/await').processTopLevelAwait(code);
  } catch {
    return null;
  }
}

const options = { filename: 'cell.js', breakOnSigint: true };
const loader = vm.constants && vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER;
if (loader) options.importModuleDynamically = loader;
/** Most versions of Node put the value into an object, so that a promise is not waited for. */
const WRAPPED = /\breturn \{ (?:__proto__: null, )?value: \(/;
let wrapped = false;
const isSyntax = (error) => error instanceof SyntaxError;

function script(code) {
  wrapped = false;
  try {
    return new vm.Script(code, options);
  } catch (error) {
    if (!isSyntax(error)) throw error;
    const modern = IMPORT.test(code) ? ((IMPORT.lastIndex = 0), withoutImports(code)) : code;
    IMPORT.lastIndex = 0;
    const awaiting = /\bawait\b/.test(modern) ? withAwait(modern) : modern === code ? null : modern;
    try {
      if (awaiting === null) throw error;
      wrapped = WRAPPED.test(awaiting);
      return new vm.Script(awaiting, options);
    } catch {
      wrapped = false;
      // A body of a function: it may return.
      if (/\b(?:await|return)\b/.test(modern))
        return new vm.Script('(async () => {' + modern + '\n})()', options);
      throw error;
    }
  }
}

async function run(code) {
  let source = code;
  // An object literal is meant where a block would be.
  if (/^\s*\{[^]*\}\s*$/.test(code)) {
    try {
      new vm.Script(`(${code.trim()})`);
      source = `(${code.trim()})`;
    } catch {}
  }
  const stopped = new Promise((_, reject) => (interrupt = reject));
  stopped.catch(() => {});
  const compiled = script(source);
  const inside = wrapped;
  const value = await Promise.race([compiled.runInThisContext(options), stopped]);
  return inside && value ? value.value : value;
}

let line = Promise.resolve();
readline
  .createInterface({ input: fs.createReadStream(null, { fd: input }) })
  .on('line', (text) => {
    line = line.then(async () => {
      const request = JSON.parse(text);
      mark = request.mark;
      marks = 0;
      const before = { ...process.env };
      Object.assign(process.env, request.env);
      try {
        const value = await run(withoutTypes(request.code));
        if (value !== undefined) report({ type: 'result', is_main_result: true, ...forms(value) });
      } catch (error) {
        fail(error);
      }
      interrupt = undefined;
      for (const name of Object.keys(request.env)) {
        if (name in before) process.env[name] = before[name];
        else delete process.env[name];
      }
      report({ type: 'end' });
    });
  })
  .on('close', () => process.exit());
