/** Pairs in settings. What cannot be read is a `UnitError`. */
import { UnitError } from '../../lib/units.ts';

const TEMPLATE = /^([a-z0-9][a-z0-9._-]{0,63})=([^\s,=]{1,512})$/;
const LABEL = /^([A-Za-z0-9./_-]{1,317})=([A-Za-z0-9._-]{0,63})$/;

/** Templates as they are written: `python=python:3.13-slim,node=node:24`. */
export function parseTemplates(text: string): Record<string, string> {
  const templates = pairsIn(text, TEMPLATE, 'NAME=IMAGE, such as python=python:3.13-slim,node=node:24');
  if (Object.hasOwn(templates, 'base'))
    throw new UnitError('must not name "base", whose image is a setting of its own');
  return templates;
}

/** Labels as they are written: `app=cay,tier=server`. */
export function parseLabels(text: string): Record<string, string> {
  return pairsIn(text, LABEL, 'labels such as app=cay,tier=server');
}

function pairsIn(text: string, form: RegExp, what: string): Record<string, string> {
  const parts = text.split(',').map((part) => part.trim());
  return Object.fromEntries(
    parts
      .filter((part) => part !== '')
      .map((part) => {
        const [, name, value] = form.exec(part) ?? [];
        if (name === undefined) throw new UnitError(`"${part.slice(0, 200)}" is not ${what}`);
        return [name, value!];
      }),
  );
}
