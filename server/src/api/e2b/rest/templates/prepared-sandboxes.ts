import type { Control } from '../../../../control/control.ts';
import { TEMPLATE } from '../../labels.ts';
import { formatTemplateRef, parseTemplateRef } from './template-name.ts';

/**
 * Creates and starts sandboxes as E2B's clients expect: templates have tags, and the start command of a
 * template is ready when the call resolves.
 */
export type PreparedSandboxes = Pick<Control, 'create' | 'start'>;

export function preparedSandboxes(
  control: Pick<Control, 'create' | 'start' | 'remove' | 'builds' | 'interpreter'>,
): PreparedSandboxes {
  const { builds, interpreter } = control;
  return {
    async create(principal, request, options) {
      const template = request.template.includes(':')
        ? formatTemplateRef(parseTemplateRef(request.template))
        : request.template;
      if (request.snapshot === undefined) await interpreter.prepare(principal, template);
      const labels = { ...request.labels, [TEMPLATE]: request.snapshot ?? template };
      const made = await control.create(principal, { ...request, template, labels }, options);
      try {
        await builds.settled(principal, made.sandbox);
        await interpreter.setEnvironment(principal, made.sandbox, request.env);
      } catch (error) {
        if (made.created) await control.remove(principal, made.sandbox.id);
        throw error;
      }
      return made;
    },
    async start(principal, ref) {
      const sandbox = await control.start(principal, ref);
      await builds.settled(principal, sandbox);
      return sandbox;
    },
  };
}
