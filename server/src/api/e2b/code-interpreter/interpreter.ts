/**
 * The template that E2B's code interpreter starts from: `base` with a kernel server of ours running in it. It
 * is made when a project uses it first, and anew when this version of the server brings another kernel. One
 * of the project's own stays.
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
  /** Makes the template if that is the one meant and it is not there. */
  prepare(principal: Principal, template: string): Promise<void>;
  /** Gives the kernel the environment of its sandbox. It may have started before the sandbox was created. */
  setEnvironment(principal: Principal, sandbox: Sandbox, env: Record<string, string>): Promise<void>;
}

export const INTERPRETER_TEMPLATE = 'code-interpreter-v1';
const DIRECTORY = '/var/lib/code-interpreter';
/** What the kernel is made of; the first is what is started. */
const MODULES = ['kernel.py', 'kernel_context.py', 'kernel_python.py', 'kernel_charts.py'] as const;
/** Read by the kernel before it runs anything. */
const ENVIRONMENT = `${DIRECTORY}/env.json`;
/** Where the kernel listens. Whoever reaches it runs code. */
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
    // Whoever asked first waits for it; so that it can be seen for what.
    log.info(
      { project: principal.project, template: INTERPRETER_TEMPLATE },
      'making a template on first use',
    );
    const { id } = await builds.request(principal, {
      template: INTERPRETER_TEMPLATE,
      names: [INTERPRETER_TEMPLATE],
      digest,
    });
    builds.start(principal, id, recipe);
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

  /** Ours, and of this version. */
  async function isThere(principal: Principal): Promise<boolean> {
    const template = (await control.templates(principal)).find(({ name }) => name === INTERPRETER_TEMPLATE);
    if (!template) return false;
    const digest = template.snapshot === null ? null : builds.of(principal, template.snapshot)?.digest;
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
      const start = sandbox.base === null ? undefined : builds.of(principal, sandbox.base)?.start;
      if (Object.keys(env).length === 0 || start !== wanted().recipe.start) return;
      const { guest, row } = await control.enter(principal, sandbox.id);
      const environment = Buffer.from(JSON.stringify(row.spec.env));
      await guest.files(row.spec.user).write(ENVIRONMENT, environment, { mode: 0o600, reach: true });
    },
  };
}
