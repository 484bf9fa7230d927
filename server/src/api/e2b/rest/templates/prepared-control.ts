/**
 * The control plane as E2B's clients expect it: templates by name and tag, and sandboxes whose start command
 * is ready.
 */
import type { Builds } from '../../../../control/templates/builds/build.ts';
import type { Control } from '../../../../control/control.ts';
import type { Interpreter } from '../../code-interpreter/interpreter.ts';
import { TEMPLATE } from '../../labels.ts';
import { formatTemplateRef, parseTemplateRef } from './template-name.ts';

export function preparedControl(control: Control, builds: Builds, interpreter: Interpreter): Control {
  return {
    ...control,
    async create(principal, request, options) {
      const template = request.template.includes(':')
        ? formatTemplateRef(parseTemplateRef(request.template))
        : request.template;
      if (request.snapshot === undefined) await interpreter.prepare(principal, template);
      const labels = { ...request.labels, [TEMPLATE]: request.snapshot ?? template };
      const made = await control.create(principal, { ...request, template, labels }, options);
      try {
        await builds.settled(principal, made.sandbox);
        await interpreter.told(principal, made.sandbox, request.env);
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
