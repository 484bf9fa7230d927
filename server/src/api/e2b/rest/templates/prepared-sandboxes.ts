import { CayError } from '@cay/sdk/protocol';
import type { Control } from '../../../../control/control.ts';
import type { Principal } from '../../../../control/tenants/principal.ts';
import { TEMPLATE } from '../../labels.ts';
import { formatTemplateRef, parseTemplateRef } from './template-name.ts';

/**
 * Creates and starts sandboxes as E2B's clients expect: templates have tags, and the start command of a
 * template is ready when the call resolves.
 */
export type PreparedSandboxes = Pick<Control, 'create' | 'start'>;

export function preparedSandboxes(
  control: Pick<Control, 'create' | 'start' | 'remove' | 'templates' | 'builds' | 'interpreter'>,
): PreparedSandboxes {
  const { builds, interpreter } = control;

  /** `name:tag` is a template here. Our own API would take it for an image, and ask a registry for it. */
  async function requireTemplate(principal: Principal, name: string): Promise<void> {
    const known = await control.templates(principal);
    if (known.some((template) => template.name === name)) return;
    throw new CayError('not_found', `Template "${name.slice(0, 80)}" does not exist`, {
      details: { what: 'template' },
    });
  }

  return {
    async create(principal, request, options) {
      const template = request.template.includes(':')
        ? formatTemplateRef(parseTemplateRef(request.template))
        : request.template;
      if (request.snapshot === undefined) {
        await interpreter.prepare(principal, template);
        if (template.includes(':')) await requireTemplate(principal, template);
      }
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
