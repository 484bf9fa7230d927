import { createHash } from 'node:crypto';
import type { Template } from '@cay/sdk/protocol';
import type { Control } from '../../../../control/control.ts';
import type { Principal } from '../../../../control/tenants/principal.ts';
import { DEFAULT_TAG, parseTemplateRef } from './template-name.ts';

export interface TaggedTemplate extends Template {
  tag: string;
}

/** Templates of a name, one for each tag. */
export async function taggedTemplates(
  control: Pick<Control, 'templates'>,
  principal: Principal,
  name: string,
): Promise<TaggedTemplate[]> {
  const found = (await control.templates(principal)).filter((template) => nameOf(template) === name);
  return found.map((template) => ({ ...template, tag: template.name.split(':')[1] ?? DEFAULT_TAG }));
}

export function nameOf({ name }: Pick<Template, 'name'>): string {
  return parseTemplateRef(name).name;
}

/** Clients accept only UUIDs as ids of builds, and not every template was built. */
export async function buildIdOf(
  { builds }: Pick<Control, 'builds'>,
  principal: Principal,
  { snapshot, name }: Template,
): Promise<string> {
  const build = snapshot === null ? undefined : await builds.of(principal, snapshot);
  return build?.id ?? uuidOf(snapshot ?? name);
}

function uuidOf(text: string): string {
  const hex = createHash('sha256').update(text).digest('hex');
  return [
    hex.slice(0, 8),
    hex.slice(8, 12),
    `8${hex.slice(13, 16)}`,
    `8${hex.slice(17, 20)}`,
    hex.slice(20, 32),
  ].join('-');
}
