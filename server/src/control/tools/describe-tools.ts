import type { ToolDialect, ToolFormat } from '@cay/sdk/protocol';
import { z } from 'zod';
import { ANTHROPIC } from './dialects/anthropic.ts';
import { CLAUDE } from './dialects/claude.ts';
import { CODEX } from './dialects/codex.ts';
import type { Dialect, DialectTool } from './dialects/dialect.ts';

export const DIALECTS: Readonly<Record<ToolDialect, Dialect>> = {
  claude: CLAUDE,
  codex: CODEX,
  anthropic: ANTHROPIC,
};

/** Without `$schema`, which some model APIs refuse. */
export function jsonSchemaOf({ schema }: Pick<DialectTool, 'schema'>): Record<string, unknown> {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, { io: 'input' }) as Record<string, unknown>;
  return rest;
}

/** What Anthropic's API calls the tools whose schemas it has itself. */
const BUILT_IN: Record<string, string> = {
  bash: 'bash_20250124',
  str_replace_based_edit_tool: 'text_editor_20250728',
};

export function describeTools(dialect: ToolDialect, format: ToolFormat): Record<string, unknown>[] {
  return [...DIALECTS[dialect].values()].map((tool) => {
    const { name, title, description, effect } = tool;
    const schema = jsonSchemaOf(tool);
    switch (format) {
      case 'anthropic':
        return dialect === 'anthropic'
          ? { type: BUILT_IN[name], name }
          : { name, description, input_schema: schema };
      case 'openai':
        return { type: 'function', name, description, parameters: schema, strict: false };
      case 'ai-sdk':
        return { name, description, inputSchema: { jsonSchema: schema } };
      case 'mcp':
        return {
          name,
          title,
          description,
          inputSchema: schema,
          annotations: { readOnlyHint: effect === 'reads' },
        };
    }
  });
}
