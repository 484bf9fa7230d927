/**
 * The code interpreter of sandboxes. Our REST API and E2B's surface both use it.
 *
 * **Terms.** The *kernel* is a small server of our own, in Python, that runs inside a sandbox on a port of
 * its loopback. It holds *contexts*: processes in which code runs and keeps its variables. A *run* is one
 * piece of code.
 *
 * **Where it is.** The kernel is started in a sandbox at its first use, whatever its template, if that has
 * Python 3. The template `code-interpreter-v1` has it running from the start. Because it is a process of the
 * sandbox, contexts survive a restart of this server, and are part of a snapshot with memory and of its
 * forks.
 *
 * **Concurrency.** Runs of one context follow one another; contexts run side by side. A caller that leaves
 * interrupts its run.
 *
 * **Errors.** `not_found` for a context that is not there, `invalid_argument` for a language or directory
 * that cannot be used, `failed_precondition` if the sandbox does not run or has no Python. What code throws
 * is an event and not an error.
 *
 * **Cost.** The first use in a sandbox starts the kernel, which takes as long as Python. A run is one request
 * to a port of the sandbox.
 *
 * **Trust.** All that comes from the kernel comes from the sandbox: it is bounded and validated.
 *
 *     for await (const event of await interpreter.run(principal, 'box', { code: '6 * 7' }))
 *       if (event.type === 'result') console.log(event.text);                               // 42
 */
import type { CodeContext, CodeEvent, CreateCodeContext, RunCode, Sandbox } from '@cay/sdk/protocol';
import type { CallOptions, Guest } from '../../guest/guest.ts';
import type { EnteredSandbox } from '../sandboxes/sandbox.ts';
import type { Principal } from '../tenants/principal.ts';

/** The port of the kernel. Any client that reaches it runs code. */
export const INTERPRETER_PORT = 49_999;
export const INTERPRETER_TEMPLATE = 'code-interpreter-v1';

export interface InterpreterVerbs {
  /** Resolves when the run was accepted. Leaving the events, or aborting the signal, interrupts it. */
  run(
    principal: Principal,
    ref: string,
    request: RunCode,
    options?: CallOptions,
  ): Promise<AsyncIterable<CodeEvent>>;
  contexts(principal: Principal, ref: string, options?: CallOptions): Promise<CodeContext[]>;
  createContext(
    principal: Principal,
    ref: string,
    request: CreateCodeContext,
    options?: CallOptions,
  ): Promise<CodeContext>;
  /** Restarts its process, without its variables. */
  restartContext(principal: Principal, ref: string, context: string, options?: CallOptions): Promise<void>;
  /** Ends what runs in it, politely first and after 3 seconds with its process. False if nothing did. */
  interruptContext(
    principal: Principal,
    ref: string,
    context: string,
    options?: CallOptions,
  ): Promise<boolean>;
  removeContext(principal: Principal, ref: string, context: string, options?: CallOptions): Promise<void>;
  /** Starts the kernel unless it runs. For surfaces that speak to its port themselves. */
  ensure(guest: Guest, row: EnteredSandbox, options?: CallOptions): Promise<void>;
  /** Builds the template of the interpreter if this is its name and it is missing or outdated. */
  prepare(principal: Principal, template: string): Promise<void>;
  /** Gives the kernel the environment of its sandbox. It may have started before the sandbox was created. */
  setEnvironment(principal: Principal, sandbox: Sandbox, env: Record<string, string>): Promise<void>;
}
