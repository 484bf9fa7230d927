/**
 * The template of E2B's code interpreter: `base` with a kernel server running in it. It is built when a
 * project first uses it, and again when a version of the server has another kernel. A template of that name
 * that the project made itself is kept.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CayError, type Sandbox } from '@cay/sdk/protocol';
import type { Logger } from 'pino';
import type { Recipe } from '../../../control/templates/builds/build.ts';
import type { Control } from '../../../control/control.ts';
import type { Principal } from '../../../control/tenants/principal.ts';

export interface Interpreter {
  /** Builds the template if this is its name and it is missing or outdated. */
  prepare(principal: Principal, template: string): Promise<void>;
  /** Gives the kernel the environment of its sandbox. It may have started before the sandbox was created. */
  setEnvironment(principal: Principal, sandbox: Sandbox, env: Record<string, string>): Promise<void>;
}

export const INTERPRETER_TEMPLATE = 'code-interpreter-v1';
const DIRECTORY = '/var/lib/code-interpreter';
/** Files of the kernel; the first is started. */
const MODULES = ['kernel.py', 'kernel_context.py', 'kernel_python.py', 'kernel_charts.py'] as const;
/** The kernel reads it before it runs code. */
const ENVIRONMENT = `${DIRECTORY}/env.json`;
/** The port of the kernel. Any client that reaches it runs code. */
export const INTERPRETER_PORT = 49_999;

export function openInterpreter(control: Control, log: Pick<Logger, 'info'>): Interpreter {
  const { builds } = control;
  const making = new Map<string, Promise<unknown>>();
  let known: { recipe: Recipe; digest: string } | undefined;

  function wanted(): { recipe: Recipe; digest: string } {
    if (known) return known;
    const modules = MODULES.map((name) => ({ name, content: readFileSync(join(import.meta.dirname, name)) }));
    const recipe: Recipe = {
      from: 'base',
      steps: modules.map(({ name, content }) => ({
        type: 'write',
        path: `${DIRECTORY}/${name}`,
        content,
        mode: 0o644,
      })),
      start: `exec python3 ${DIRECTORY}/${MODULES[0]} ${INTERPRETER_PORT} ${ENVIRONMENT}`,
      ready: `: < /dev/tcp/127.0.0.1/${INTERPRETER_PORT}`,
    };
    const digest = createHash('sha256').update(JSON.stringify(recipe)).digest('hex');
    return (known = { recipe, digest });
  }

  async function make(principal: Principal): Promise<void> {
    const { recipe, digest } = wanted();
    const began = performance.now();
    // The first caller waits for the build, so the log says why.
    log.info(
      { project: principal.project, template: INTERPRETER_TEMPLATE },
      'making a template on first use',
    );
    const { id } = await builds.request(principal, {
      template: INTERPRETER_TEMPLATE,
      names: [INTERPRETER_TEMPLATE],
      digest,
    });
    await builds.start(principal, id, recipe);
    await builds.finished(principal, id).catch((error: unknown) => {
      const why = error instanceof Error ? error.message : String(error);
      throw new CayError(
        'failed_precondition',
        `Cannot make the template "${INTERPRETER_TEMPLATE}": ${why}`,
        {
          hint: 'it needs Python 3 in "base"',
          cause: error,
        },
      );
    });
    log.info(
      {
        project: principal.project,
        template: INTERPRETER_TEMPLATE,
        ms: Math.round(performance.now() - began),
      },
      'made the template',
    );
  }

  /** Whether the template exists, and is either of this version or made by the project itself. */
  async function isThere(principal: Principal): Promise<boolean> {
    const template = (await control.templates(principal)).find(({ name }) => name === INTERPRETER_TEMPLATE);
    if (!template) return false;
    const digest =
      template.snapshot === null ? null : (await builds.of(principal, template.snapshot))?.digest;
    return !digest || digest === wanted().digest;
  }

  return {
    async prepare(principal, template) {
      if (template !== INTERPRETER_TEMPLATE || (await isThere(principal))) return;
      let made = making.get(principal.project);
      if (!made) {
        made = make(principal).finally(() => making.delete(principal.project));
        making.set(principal.project, made);
      }
      await made;
    },
    async setEnvironment(principal, sandbox, env) {
      const start = sandbox.base === null ? undefined : (await builds.of(principal, sandbox.base))?.start;
      if (Object.keys(env).length === 0 || start !== wanted().recipe.start) return;
      const { guest, row } = await control.enter(principal, sandbox.id);
      const environment = Buffer.from(JSON.stringify(row.spec.env));
      await guest.files(row.spec.user).write(ENVIRONMENT, environment, { mode: 0o600, reach: true });
    },
  };
}
