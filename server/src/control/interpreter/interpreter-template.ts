/**
 * The template of the code interpreter: `base` with the kernel running in it. It is built when a project
 * first uses it, and again when a version of the server has another kernel. A template of that name that the
 * project made itself is kept.
 */
import { createHash } from 'node:crypto';
import { CayError } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import type { Control } from '../control.ts';
import type { Recipe } from '../templates/builds/build.ts';
import type { Principal } from '../tenants/principal.ts';
import { INTERPRETER_PORT, INTERPRETER_TEMPLATE, type InterpreterVerbs } from './interpreter.ts';
import { environmentFile, kernelCommand, kernelFiles } from './kernel-files.ts';
import { KERNEL_DIRECTORY } from './start-kernel.ts';

const START = `exec ${kernelCommand(KERNEL_DIRECTORY).join(' ')}`;

export type TemplateControl = Pick<Control, 'builds' | 'enter' | 'templates'>;

export interface TemplateOptions {
  control: TemplateControl;
  /** Told when a template is made, for the log: the first caller waits for that. */
  onMade?(project: string, ms: number): void;
}

export function interpreterTemplate({
  control,
  onMade,
}: TemplateOptions): Pick<InterpreterVerbs, 'prepare' | 'setEnvironment'> {
  const { builds } = control;
  const making = new Map<string, Promise<unknown>>();
  let known: { recipe: Recipe; digest: string } | undefined;

  function wanted(): { recipe: Recipe; digest: string } {
    if (known) return known;
    const { files, digest: ofFiles } = kernelFiles();
    const contents = [...files, { name: 'digest', content: Buffer.from(ofFiles) }];
    const ready = `: < /dev/tcp/127.0.0.1/${INTERPRETER_PORT}`;
    const recipe: Recipe = {
      from: 'base',
      steps: contents.map(({ name, content }) => ({
        type: 'write',
        path: `${KERNEL_DIRECTORY}/${name}`,
        content,
        mode: 0o644,
      })),
      start: START,
      ready,
    };
    const digest = createHash('sha256').update([ofFiles, START, ready].join('\0')).digest('hex');
    return (known = { recipe, digest });
  }

  async function make(principal: Principal): Promise<void> {
    const { recipe, digest } = wanted();
    const began = performance.now();
    const { id } = await builds.request(principal, {
      template: INTERPRETER_TEMPLATE,
      names: [INTERPRETER_TEMPLATE],
      digest,
    });
    await builds.start(principal, id, recipe);
    await builds.finished(principal, id).catch((error: unknown) => {
      const why = systemReason(error);
      throw new CayError(
        'failed_precondition',
        `Cannot make the template "${INTERPRETER_TEMPLATE}": ${why}`,
        { hint: 'it needs Python 3 in "base"', cause: error },
      );
    });
    onMade?.(principal.project, Math.round(performance.now() - began));
  }

  /** Whether the template exists, and is either of this version or made by the project itself. */
  async function isThere(principal: Principal): Promise<boolean> {
    const template = (await control.templates(principal)).find(({ name }) => name === INTERPRETER_TEMPLATE);
    if (!template) return false;
    const build = template.snapshot === null ? undefined : await builds.of(principal, template.snapshot);
    return !build?.digest || build.digest === wanted().digest;
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
      if (Object.keys(env).length === 0 || sandbox.base === null) return;
      const build = await builds.of(principal, sandbox.base);
      if (build?.start !== START) return;
      const { guest, row } = await control.enter(principal, sandbox.id);
      const environment = Buffer.from(JSON.stringify(row.spec.env));
      await guest
        .files(row.spec.user)
        .write(environmentFile(KERNEL_DIRECTORY), environment, { mode: 0o600, reach: true });
    },
  };
}
